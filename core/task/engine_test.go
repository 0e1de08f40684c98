package task

import (
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

func TestTask(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	h, ok := w.e.Task(10)
	want(t, "there", ok, true)
	want(t, "number", h.TID, 10)
	for _, tid := range []uint32{0, 11, 1 << 22, ^uint32(0)} {
		if _, ok := w.e.Task(tid); ok {
			t.Errorf("task %d: got a record, want none", tid)
		}
	}
}

// steady is an engine that has seen all that it will need memory for.
type steady struct {
	e    *Engine
	w    *table.Writer
	now  uint64
	fork ForkEvent
	c    Change
}

func newSteady(tb testing.TB) *steady {
	w, err := table.NewAnonymous()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { w.Close() })
	s := &steady{e: New(w, userHz), w: w, now: 1e9}
	for tid := uint32(1); tid <= 1000; tid++ {
		s.born(tid, tid, 1)
	}
	s.born(1001, 1001, 1)
	s.process()
	s.thread()
	return s
}

func (s *steady) born(tid, tgid, ppid uint32) {
	s.now += 1000
	s.fork = ForkEvent{TID: tid, TGID: tgid, PPID: ppid, CreatorTID: ppid, ParentKnown: true, AtNs: s.now, BootNs: s.now + bootNs}
	if s.e.ObserveFork(&s.fork, &s.c) != nil || s.c.Type == Nothing {
		panic("a fork was not applied")
	}
}

func (s *steady) gone(tid, tgid uint32) {
	s.now += 1000
	s.e.ObserveExit(tid, tgid, s.now, s.now+bootNs, &s.c)
	if s.c.Type == Nothing {
		panic("an exit was not applied")
	}
}

func (s *steady) process() {
	s.born(2000, 2000, 1001)
	s.gone(2000, 2000)
	s.now += 1000
	s.e.ObserveFree(2000, s.now)
}

func (s *steady) thread() {
	s.born(2001, 1001, 1001)
	s.gone(2001, 1001)
}

func (s *steady) exec() {
	s.now += 1000
	s.e.ObserveExec(1001, [16]byte{'x'}, true, s.now, &s.c)
	if s.c.Type != Execed {
		panic("an exec was not applied")
	}
}

func (s *steady) shortExec() {
	s.born(2000, 2000, 1001)
	s.now += 1000
	s.e.ObserveExec(2000, [16]byte{'x'}, true, s.now, &s.c)
	s.gone(2000, 2000)
	s.now += 1000
	s.e.ObserveFree(2000, s.now)
}

func TestAllocs(t *testing.T) {
	s := newSteady(t)
	var h table.Hot
	ok := true
	for name, do := range map[string]func(){
		"fork and exit of a process": s.process,
		"fork and exit of a thread":  s.thread,
		"exec":                       s.exec,
		"exec by another thread": func() {
			s.born(2001, 1001, 1001)
			s.now += 1000
			s.e.ObserveExit(1001, 1001, s.now, s.now+bootNs, &s.c)
			s.exec()
		},
		"rename":     func() { s.now += 1000; s.e.ObserveRename(1001, [16]byte{'y'}, s.now, &s.c) },
		"NextLeader": func() { ok = ok && s.e.Namespace().NextLeader(500, &h) },
		"Task":       func() { h, ok = s.e.Task(1001) },
		"check": func() {
			s.now += verifyAfterNs
			if c, due := s.e.NextCheck(s.now); due {
				seen := Seen{TID: c.TID, TGID: c.TGID, PPID: 1, StartTicks: (s.now + bootNs) / tickNs, State: 'S', AtNs: s.now}
				s.e.Verified(&c, &seen, s.now, &s.c)
			}
		},
	} {
		if got := testing.AllocsPerRun(200, do); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, got)
		}
	}
	if !ok {
		t.Error("a lookup failed")
	}
	checkInvariants(t, s.e, between)
}

func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name string
		do   func(*steady)
	}{
		{"process", (*steady).process},
		{"thread", (*steady).thread},
		{"exec", (*steady).shortExec},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newSteady(b)
			for b.Loop() {
				c.do(s)
			}
		})
	}
}

func BenchmarkTask(b *testing.B) {
	s := newSteady(b)
	for b.Loop() {
		lookUp(s.e)
	}
}

//go:noinline
func lookUp(e *Engine) (sum uint64) {
	h, _ := e.Task(500)
	return h.StartTicks
}
