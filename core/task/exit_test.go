package task

import (
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

// CASES.md B44, B45: a leader that has called pthread_exit.
func TestExitOfLeaderWhileThreadsLive(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.fork(12, 10, 1)
	want(t, "exit of the leader", w.exit(10, 10), Nothing)
	h := w.task(10)
	want(t, "state", h.State, 'Z')
	want(t, "flags", h.Flags&(table.FlagExitedLeader|table.FlagZombie), table.FlagExitedLeader)
	want(t, "threads", h.Threads, 3)
	want(t, "exit of a thread", w.exit(11, 10), ThreadGone)
	want(t, "zombies", w.e.Zombies(), 0)
	want(t, "exit of the last thread", w.exit(12, 10), Ended)
	want(t, "the process that ended", w.c.PID, 10)
	want(t, "the task that the end names", w.c.TID, 10)
	w.zombie(10)
	want(t, "threads of the zombie", w.task(10).Threads, 1)
	want(t, "zombies", w.e.Zombies(), 1)
	want(t, "exit told twice", w.exit(10, 10), Nothing)
	w.e.ObserveFree(10, w.step())
	w.gone(10)
}

// CASES.md B47: a thread's exit is not its process's.
func TestExitOfThreadOnlyLowersCount(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	for tid := uint32(11); tid < 61; tid++ {
		want(t, "fork of a thread", w.fork(tid, 10, 1), ThreadBorn)
	}
	for tid := uint32(11); tid < 61; tid++ {
		want(t, "exit of a thread", w.exit(tid, 10), ThreadGone)
		want(t, "the thread that went", w.c.TID, tid)
		w.gone(tid)
		want(t, "threads", w.task(10).Threads, 61-tid)
		w.alive(10)
	}
	want(t, "processes", w.w.Header().Processes, 1)
	want(t, "deaths", w.w.Header().Deaths, 0)
}

func TestObserveExitOfOthers(t *testing.T) {
	w := newWorld(t)
	old := w.now
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	before := w.w.Header().Changes
	for _, c := range []struct {
		name      string
		tid, tgid uint32
		at        uint64
	}{
		{"unknown", 99, 99, w.step()},
		{"beyond all numbers", 1 << 30, 1 << 30, w.step()},
		{"zero", 0, 0, w.step()},
		{"of another group", 11, 12, w.step()},
		{"older than the life", 11, 10, old - 2*tickNs},
		{"older than the process", 10, 10, old - 2*tickNs},
	} {
		want(t, c.name, w.exitAt(c.tid, c.tgid, c.at), Nothing)
	}
	want(t, "changes", w.w.Header().Changes, before)
	w.alive(10)
	w.alive(11)
}

func TestChildrenOfEndedProcessAreLookedUp(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(20, 20, 10)
	w.fork(21, 20, 10) // a thread of the child
	w.fork(30, 30, 10)
	answers := func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, 1, w.task(c.TID).StartTicks, "x")
		if c.TID == 20 && w.task(10).State == 0 || c.TID == 1 {
			s.PPID = 10 * (c.TID / 10 % 2)
		}
		if c.TID == 20 || c.TID == 30 {
			s.PPID = 10
			if w.task(10).State == 'Z' {
				s.PPID = 1
			}
		}
		if c.TID == 1 {
			s.PPID = 0
		}
		return &s
	}
	w.check(answers)
	want(t, "unverified", w.e.Unverified(), 0)
	want(t, "parent of 20", w.task(20).PPID, 10)
	w.exit(30, 30)
	want(t, "exit of the parent", w.exit(10, 10), Ended)
	if f := w.task(20).Flags; f&table.FlagPPIDEstimated == 0 {
		t.Errorf("flags of a child without its parent: got %#x, want PPIDEstimated", f)
	}
	looked := w.check(answers)
	if len(looked) != 1 || looked[0] != 20 {
		t.Errorf("looked up: got %v, want [20]: not the thread, not the zombie", looked)
	}
	h := w.task(20)
	want(t, "parent of 20", h.PPID, 1)
	want(t, "flags of 20", h.Flags, 0)
}

// A check that asks just before the kernel has given the children away is told
// the old parent.
func TestParentThatHasJustEndedIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(20, 20, 10)
	w.exit(10, 10)
	w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, c.TID/2/10*10, w.task(c.TID).StartTicks, "x")
		return &s
	})
	h := w.task(20)
	want(t, "parent", h.PPID, 10)
	want(t, "flags", h.Flags, table.FlagPPIDEstimated)
	want(t, "unverified", w.e.Unverified(), 1)
	w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, 1, w.task(c.TID).StartTicks, "x")
		return &s
	})
	want(t, "parent", w.task(20).PPID, 1)
	want(t, "flags", w.task(20).Flags, 0)
}

// A child made by a process whose end is known already has another parent by now.
func TestForkByEndedProcess(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.exit(10, 10)
	w.fork(20, 20, 10)
	h := w.task(20)
	want(t, "parent", h.PPID, 10)
	want(t, "flags", h.Flags&table.FlagPPIDEstimated, table.FlagPPIDEstimated)
	w.e.ReapGone(1, w.now, func(uint32) bool { return true })
	w.checked()
}
