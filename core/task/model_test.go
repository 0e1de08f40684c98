package task

import (
	"math/rand/v2"
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

// script turns bytes into events, sense or nonsense, about a handful of numbers:
// forks of numbers in use, exits of nobody, execs of threads, late events, and
// snapshots that contradict all of it. After each the invariants are checked.
type script struct {
	t     testing.TB
	e     *Engine
	now   uint64
	bytes []byte
	c     Change
	held  []Check
}

func (s *script) next() uint32 {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return uint32(b)
}

// at is a time around now, seldom long ago.
func (s *script) at() uint64 {
	s.now += 1e6
	if b := s.next(); b >= 224 {
		return s.now - uint64(b-223)*3e6
	}
	return s.now
}

func (s *script) run() {
	for n := 0; len(s.bytes) > 0 && n < 400; n++ {
		op := s.next()
		tid, tgid, other := s.next()%12, s.next()%12, s.next()
		at := s.at()
		name := [16]byte{byte(other)}
		switch op % 16 {
		case 0, 1, 2:
			tgid = tid
			fallthrough
		case 3, 4, 5:
			f := ForkEvent{
				TID: tid, TGID: tgid, PPID: other % 13, CreatorTID: other / 16 % 12,
				ParentKnown: other&1 == 0, AtNs: at, BootNs: at + bootNs,
			}
			if err := s.e.ObserveFork(&f, &s.c); err != nil {
				s.t.Fatal(err)
			}
		case 6, 7:
			s.e.ObserveExit(tid, tgid, at, at+bootNs, &s.c)
		case 8:
			s.e.ObserveExit(tid, tid, at, at+bootNs, &s.c)
		case 9: // another thread execs
			s.e.ObserveExit(tid, tid, at, at+bootNs, &s.c)
			s.e.ObserveExec(tid, name, other&1 == 0, at+1, &s.c)
		case 10:
			s.e.ObserveExec(tid, name, other&1 == 0, at, &s.c)
		case 11:
			s.e.ObserveRename(tid, name, at, &s.c)
		case 12:
			s.e.ObserveFree(tid, at)
			s.e.ReapGone(int(other%4), s.now, func(tgid uint32) bool { return tgid&1 == 0 })
		case 13:
			s.now += verifyAfterNs
			s.verify(other)
		case 14:
			s.snapshot(int(other % 8))
		case 15:
			s.verify(other)
		}
		checkInvariants(s.t, s.e, between)
	}
}

// seen makes up a look at a task, near what is known of it or far from it.
func (s *script) seen(tid, tgid uint32) *Seen {
	b := s.next()
	look := &Seen{
		TID: tid, TGID: tgid, PPID: b % 13, StartTicks: (s.now + bootNs) / tickNs, AtNs: s.now,
		State: "SRZXSSSS"[b/16%8], KThread: b == 255,
	}
	if h, ok := s.e.Task(tid); ok && b&1 == 0 {
		look.StartTicks = h.StartTicks
	}
	return look
}

func (s *script) verify(other uint32) {
	if c, ok := s.e.NextCheck(s.now); ok {
		s.held = append(s.held, c)
	}
	if other&1 == 0 || len(s.held) == 0 {
		return // answered later, when much may have happened
	}
	c := s.held[0]
	s.held = s.held[1:]
	var look *Seen
	if other&2 == 0 {
		look = s.seen(c.TID, c.TGID)
	}
	s.e.Verified(&c, look, s.now, new(Change))
}

func (s *script) snapshot(tasks int) {
	s.now += 1e6
	start := s.now
	s.e.MergeBegin()
	for range tasks {
		s.now += 1e6
		tgid := s.next() % 12
		tid := tgid
		if b := s.next(); b&1 != 0 {
			tid = b / 2 % 12
		}
		if err := s.e.MergeTask(s.seen(tid, tgid)); err != nil {
			s.t.Fatal(err)
		}
		checkInvariants(s.t, s.e, merging)
	}
	s.e.MergeEnd(start, func(tid, tgid uint32) (uint64, bool) {
		look := s.seen(tid, tgid)
		return look.StartTicks, look.State == 'S'
	})
}

func runScript(t testing.TB, w *table.Writer, b []byte) {
	s := &script{t: t, e: New(w, userHz), now: 1e9, bytes: b}
	s.run()
	checkSlots(t, s.e)
}

// TestModelObserve runs scripts at random.
func TestModelObserve(t *testing.T) {
	scripts := 400
	if testing.Short() {
		scripts = 60
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range scripts {
		w, err := table.NewAnonymous()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100+r.IntN(2000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		runScript(t, w, b)
		w.Close()
	}
}

func FuzzObserve(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 0, 0, 2, 2, 1, 0, 3, 3, 2, 2, 0, 8, 2, 2, 0, 0})
	f.Add([]byte{14, 0, 0, 7, 0, 1, 0, 2, 2, 0, 2, 2, 3, 0, 8, 2, 2, 0, 240, 13, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := table.NewAnonymous()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		runScript(t, w, b)
	})
}

// The invariants' own check: each damage is seen.
func TestExaminerSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(e *Engine, slot func(tid uint32) *record){
		"a wrong member count":     func(e *Engine, slot func(uint32) *record) { slot(10).members++ },
		"a broken ring":            func(e *Engine, slot func(uint32) *record) { slot(11).next = e.ids.Find(11) },
		"a lost child":             func(e *Engine, slot func(uint32) *record) { slot(1).child = 0 },
		"a child of nobody":        func(e *Engine, slot func(uint32) *record) { slot(20).parent = e.ids.Find(1) },
		"an early end":             func(e *Engine, slot func(uint32) *record) { slot(10).flags |= exited | ended },
		"a zombie without a queue": func(e *Engine, slot func(uint32) *record) { e.dequeue(e.ids.Find(30)) },
		"a broken queue":           func(e *Engine, slot func(uint32) *record) { slot(10).qnext = 0 },
		"two of one generation":    func(e *Engine, slot func(uint32) *record) { slot(10).gen = slot(1).gen },
		"a leaked slot":            func(e *Engine, slot func(uint32) *record) { slot(11).tid = 0 },
		"a missing tag":            func(e *Engine, _ func(uint32) *record) { e.tab.Tree().ClearTag(10, 0) },
		"a tagged thread":          func(e *Engine, _ func(uint32) *record) { e.tab.Tree().SetTag(11, 0) },
		"a stale published count": func(e *Engine, _ func(uint32) *record) {
			e.update(e.ids.Find(10), func(h *table.Hot) { h.Threads = 7 })
		},
		"a stale published parent":  func(e *Engine, _ func(uint32) *record) { e.update(e.ids.Find(10), func(h *table.Hot) { h.PPID = 7 }) },
		"a zombie published alive":  func(e *Engine, _ func(uint32) *record) { e.update(e.ids.Find(30), markAlive) },
		"a wrong number of tasks":   func(e *Engine, _ func(uint32) *record) { e.tab.Header().Tasks++ },
		"a wrong number of leaders": func(e *Engine, _ func(uint32) *record) { e.tab.Header().Processes-- },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fork(1, 1, 0)
			w.fork(10, 10, 1)
			w.fork(11, 10, 1)
			w.fork(20, 20, 99)
			w.fork(30, 30, 1)
			w.exit(30, 30)
			damage(w.e, func(tid uint32) *record { return w.e.recs.at(w.e.ids.Find(tid)) })
			if err := examine(w.e, between); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}
