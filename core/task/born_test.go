package task

import (
	"errors"
	"testing"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// A source that tells the parent of a thread's group, and not who called clone:
// the thread has its name from its own group.
func TestObserveForkThreadNamedByGroup(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(20, 20, 10)
	w.e.ObserveRename(10, comm("shell"), w.step(), &w.c)
	w.e.ObserveRename(20, comm("program"), w.step(), &w.c)
	at := w.step()
	f := ForkEvent{TID: 21, TGID: 20, PPID: 10, ParentKnown: true, AtNs: at, BootNs: at + bootNs}
	if err := w.e.ObserveFork(&f, &w.c); err != nil {
		t.Fatal(err)
	}
	w.checked()
	if h := w.task(21); string(h.Name()) != "program" {
		t.Errorf("name of the thread: got %q, want %q, its group's", h.Name(), "program")
	}
}

func TestObserveFork(t *testing.T) {
	w := newWorld(t)
	want(t, "fork", w.fork(10, 10, 1), Born)
	want(t, "told: pid", w.c.PID, 10)
	want(t, "told: ppid", w.c.PPID, 1)
	h := w.task(10)
	want(t, "parent", h.PPID, 1)
	want(t, "parent at fork", h.PPIDAtFork, 1)
	want(t, "start_ns", h.StartNs, w.now+bootNs)
	want(t, "start", h.StartTicks, w.ticks())
	want(t, "flags without a known parent", h.Flags, table.FlagStartEstimated|table.FlagPPIDEstimated)
	w.rename(10, "leader")
	want(t, "thread", w.fork(11, 10, 1), ThreadBorn)
	want(t, "name of the thread", w.name(11), "leader")
	want(t, "parent of the thread", w.task(11).PPID, 0)
	want(t, "told: parent of the thread's group", w.c.PPID, 1)
	w.rename(11, "worker")
	f := ForkEvent{TID: 20, TGID: 20, PPID: 10, CreatorTID: 11, AtNs: w.step(), BootNs: w.now + bootNs}
	if err := w.e.ObserveFork(&f, &w.c); err != nil {
		t.Fatal(err)
	}
	h = w.task(20)
	want(t, "name of a child", string(h.Name()), "worker")
	want(t, "flags without a told parent", h.Flags, table.FlagStartEstimated|table.FlagPPIDEstimated)
	w.fork(21, 21, 20)
	want(t, "flags with a told and known parent", w.task(21).Flags, table.FlagStartEstimated)
	want(t, "births", w.w.Header().Births, 3)
	for _, tid := range []uint32{0, pid.Max, ^uint32(0)} {
		n := w.e.Stats().Orphans.Load()
		want(t, "no number", w.fork(tid, tid, 1), Nothing)
		want(t, "orphans", w.e.Stats().Orphans.Load(), n+1)
	}
	n := w.e.Stats().Orphans.Load()
	want(t, "thread of nobody", w.fork(30, 77, 1), Nothing)
	want(t, "thread of a thread", w.fork(30, 11, 1), Nothing)
	w.gone(30)
	want(t, "orphans", w.e.Stats().Orphans.Load(), n+2)
}

// DESIGN.md, observe: a zombie whose reaping was never told.
func TestForkOfUnreapedNumber(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.exec(10, "old")
	w.exit(10, 10)
	old := w.task(10)
	want(t, "fork", w.fork(10, 10, 1), Born)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
	w.alive(10)
	h := w.task(10)
	if h.Gen == old.Gen || h.Gen == 0 {
		t.Errorf("gen: got %d after %d, want another", h.Gen, old.Gen)
	}
	want(t, "name", string(h.Name()), "")
	want(t, "start: the same tick", h.StartTicks, old.StartTicks)
	want(t, "zombies", w.e.Zombies(), 0)
	want(t, "deaths", w.w.Header().Deaths, 1)
	want(t, "births", w.w.Header().Births, 2)
}

// CASES.md B1, B5: nothing of the life before is left, in whatever role.
func TestNewLifeUnderReusedNumber(t *testing.T) {
	prepare := map[string]func(w *world){
		"a process": func(w *world) {
			w.fork(20, 20, 10)
			w.fork(21, 20, 10)
			w.fork(30, 30, 20)
			w.exec(20, "secret")
			w.fork(21, 20, 10)
		},
		"an exited leader": func(w *world) { w.fork(20, 20, 10); w.rename(20, "secret"); w.fork(21, 20, 10); w.exit(20, 20) },
		"a zombie":         func(w *world) { w.fork(20, 20, 10); w.rename(20, "secret"); w.exit(20, 20) },
		"a thread":         func(w *world) { w.fork(20, 10, 1); w.rename(20, "secret") },
		"a last thread":    func(w *world) { w.fork(15, 15, 10); w.fork(20, 15, 1); w.exit(15, 15); w.rename(20, "secret") },
		"a scanned process": func(w *world) {
			w.merge(w.seen(10, 10, 1, 1, "p"), w.seen(11, 11, 1, 1, "q"), w.seen(20, 20, 10, w.ticks(), "secret"))
			w.exit(20, 20)
		},
		"a scanned thread": func(w *world) {
			w.merge(w.seen(10, 10, 1, 1, "p"), w.seen(11, 11, 1, 1, "q"), w.seen(20, 10, 10, w.ticks(), "secret"))
			w.exit(20, 10)
		},
	}
	for was, before := range prepare {
		for _, tgid := range []uint32{20, 10} {
			t.Run(was+" becomes "+map[uint32]string{20: "a process", 10: "a thread"}[tgid], func(t *testing.T) {
				w := newWorld(t)
				w.fork(10, 10, 1)
				w.rename(10, "p")
				w.fork(11, 11, 1)
				w.rename(11, "q")
				before(w)
				old, _ := w.e.Task(20)
				at := w.now
				f := ForkEvent{TID: 20, TGID: tgid, PPID: 11, ParentKnown: true, AtNs: w.step(), BootNs: w.now + bootNs}
				if tgid == 10 {
					f.PPID = 10
				}
				if err := w.e.ObserveFork(&f, &w.c); err != nil {
					t.Fatal(err)
				}
				w.checked()
				h := w.task(20)
				if h.Gen == old.Gen {
					t.Errorf("gen: got %d again", h.Gen)
				}
				want(t, "tgid", h.TGID, tgid)
				want(t, "name", string(h.Name()), map[uint32]string{20: "q", 10: "p"}[tgid])
				want(t, "state", h.State, 0)
				want(t, "start_ns", h.StartNs, w.now+bootNs)
				want(t, "an older exit", w.exitAt(20, old.TGID, at), Nothing)
				want(t, "an older name", w.renameAt(20, "secret", at), Nothing)
				want(t, "gen after older events", w.task(20).Gen, h.Gen)
				want(t, "name after older events", w.task(20).Comm, h.Comm)
				w.gone(21)
				if tgid == 20 {
					want(t, "threads", h.Threads, 1)
					want(t, "parent", h.PPID, 11)
				}
				want(t, "exit", w.exit(20, tgid), map[uint32]ChangeType{20: Ended, 10: ThreadGone}[tgid])
			})
		}
	}
}

// A thread is told of in a process that was thought to have ended.
func TestForkOfThreadRevivesEndedProcess(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.exit(10, 10)
	want(t, "fork", w.fork(12, 10, 1), ThreadBorn)
	h := w.task(10)
	want(t, "state", h.State, 'Z')
	want(t, "flags", h.Flags&(table.FlagZombie|table.FlagExitedLeader), table.FlagExitedLeader)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
	want(t, "exit", w.exit(12, 10), Ended)
	w.zombie(10)
}

// A parent whose exit was never told: its children get looked up all the same.
func TestRepairedParentLeavesNoStaleChildren(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(20, 20, 10)
	w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, map[uint32]uint32{10: 1, 20: 10}[c.TID], w.task(c.TID).StartTicks, "x")
		return &s
	})
	w.fork(10, 10, 1)
	h := w.task(20)
	want(t, "flags", h.Flags, table.FlagPPIDEstimated)
	want(t, "deaths", w.w.Header().Deaths, 1)
	looked := w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, 1, w.task(c.TID).StartTicks, "x")
		return &s
	})
	want(t, "lives looked up", len(looked), 2)
	want(t, "parent", w.task(20).PPID, 1)
}

func TestRename(t *testing.T) {
	w := newWorld(t)
	old := w.now
	w.fork(10, 10, 1)
	want(t, "rename", w.rename(10, "new"), Renamed)
	want(t, "told", w.c.Comm, comm("new"))
	want(t, "older than the life", w.renameAt(10, "old", old), Nothing)
	want(t, "of nobody", w.rename(11, "x"), Nothing)
	want(t, "name", w.name(10), "new")
	if err := w.e.Rename(11, comm("x")); !errors.Is(err, unix.ESRCH) {
		t.Errorf("rename of nobody: got %v, want ESRCH", err)
	}
	hostile := [16]byte{'a', ')', ' ', '\n', 0xff, '\\', '"'}
	if err := w.e.Rename(10, hostile); err != nil {
		t.Fatal(err)
	}
	want(t, "name", w.task(10).Comm, hostile)
}
