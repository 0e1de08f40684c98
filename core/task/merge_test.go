package task

import (
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

func TestMergeIntoEmptyTable(t *testing.T) {
	w := newWorld(t)
	zombie := w.seen(30, 30, 20, 50, "dead")
	zombie.State = 'Z'
	exitedLeader := w.seen(40, 40, 1, 60, "leader")
	exitedLeader.State = 'Z'
	released := w.merge(
		w.seen(0, 0, 0, 0, "none"),
		w.seen(1, 1, 0, 3, "init"),
		w.seen(5, 5, 20, 90, "child"), // before its parent: pids have wrapped
		w.seen(20, 20, 1, 40, "parent"),
		w.seen(21, 20, 1, 41, "thread"),
		zombie,
		exitedLeader,
		w.seen(41, 40, 1, 61, "worker"),
		w.seen(51, 50, 1, 61, "its leader went meanwhile"),
		w.seen(1<<22, 1<<22, 1, 0, "beyond"),
	)
	want(t, "released", released, 0)
	want(t, "tasks", w.w.Header().Tasks, 7)
	want(t, "processes", w.w.Header().Processes, 5)
	w.gone(51)
	h := w.task(20)
	want(t, "start", h.StartTicks, 40)
	want(t, "flags", h.Flags, 0)
	want(t, "threads", h.Threads, 2)
	w.zombie(30)
	want(t, "zombies", w.e.Zombies(), 1)
	want(t, "flags of an exited leader", w.task(40).Flags, table.FlagExitedLeader)
	want(t, "end with the last thread", w.exit(41, 40), Ended)
	want(t, "unverified", w.e.Unverified(), 0)
	// The parent was linked although it came later.
	w.exit(21, 20)
	w.exit(20, 20)
	want(t, "flags of a child whose parent ended", w.task(5).Flags, table.FlagPPIDEstimated)
	want(t, "unverified", w.e.Unverified(), 1)
}

func TestMergeKeepsKnownLives(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	start := w.ticks()
	w.fork(11, 10, 1)
	w.fork(12, 12, 10)
	before := w.task(10)
	w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, start, "exact"), w.seen(11, 10, 1, start, "thread"), w.seen(12, 12, 1, start, "child"))
	h := w.task(10)
	want(t, "gen", h.Gen, before.Gen)
	want(t, "flags", h.Flags, 0)
	want(t, "name", w.name(10), "exact")
	want(t, "start_ns", h.StartNs, before.StartNs)
	want(t, "parent", w.task(12).PPID, 1)
	want(t, "parent at fork", w.task(12).PPIDAtFork, 10)
	want(t, "unverified", w.e.Unverified(), 0)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 0)
}

// An estimate is never before the start but for rounding, and at most a second after.
func TestSameStart(t *testing.T) {
	for _, c := range []struct {
		name       string
		flags      uint32
		has, exact uint64
		same       bool
	}{
		{name: "equal", has: 500, exact: 500, same: true},
		{name: "one later", has: 501, exact: 500},
		{name: "one earlier", has: 499, exact: 500},
		{name: "estimate equal", flags: table.FlagStartEstimated, has: 500, exact: 500, same: true},
		{name: "estimate a second late", flags: table.FlagStartEstimated, has: 600, exact: 500, same: true},
		{name: "estimate later still", flags: table.FlagStartEstimated, has: 601, exact: 500},
		{name: "estimate rounded down", flags: table.FlagStartEstimated, has: 499, exact: 500, same: true},
		{name: "estimate two early", flags: table.FlagStartEstimated, has: 498, exact: 500},
		{name: "estimate at boot", flags: table.FlagStartEstimated, has: 3, exact: 0, same: true},
	} {
		h := table.Hot{Flags: c.flags, StartTicks: c.has}
		want(t, c.name, sameStart(&h, c.exact, userHz), c.same)
	}
}

func TestMergeReleasesWhatIsGone(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.fork(20, 20, 10)
	w.fork(30, 30, 1)
	w.fork(31, 30, 1)
	w.exit(30, 30)
	w.fork(40, 40, 1)
	w.fork(50, 50, 1)
	start := w.ticks()
	w.e.MergeBegin()
	w.m = merging
	begin := w.step()
	for _, s := range []Seen{w.seen(1, 1, 0, start, "init"), w.seen(20, 20, 10, start, "child")} {
		if err := w.e.MergeTask(&s); err != nil {
			t.Fatal(err)
		}
	}
	released := w.e.MergeEnd(begin, func(tid, tgid uint32) (uint64, bool) {
		switch tid {
		case 40:
			return start, true // there after all
		case 30:
			return start, true // the exited leader; its last thread is gone
		case 50:
			return start + 500, true // another life
		}
		return 0, false
	})
	w.m = between
	w.checked()
	want(t, "released: 10 with 11, 31, 50", released, 3)
	for _, tid := range []uint32{10, 11, 31, 50} {
		w.gone(tid)
	}
	w.alive(40)
	w.zombie(30)
	want(t, "flags of the child of 10", w.task(20).Flags, table.FlagPPIDEstimated)
	want(t, "deaths: 10, 30, 50", w.w.Header().Deaths, 3)
	want(t, "waits for a look at its parent", w.e.Unverified() > 0, true)
}

// Nothing that is older than the snapshot's look changes what it saw.
func TestEventsOlderThanTheLook(t *testing.T) {
	w := newWorld(t)
	old := w.now
	w.now += 3 * tickNs
	w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, w.ticks(), "now"), w.seen(11, 10, 1, w.ticks(), "thread"))
	before, thread := w.task(10), w.task(11)
	for _, c := range []struct {
		name string
		do   func() ChangeType
	}{
		{"fork", func() ChangeType { return w.forkAt(10, 10, 1, old) }},
		{"fork of a thread", func() ChangeType { return w.forkAt(11, 10, 1, old) }},
		{"fork as a thread of another", func() ChangeType { return w.forkAt(10, 1, 1, old) }},
		{"exec", func() ChangeType { return w.execAt(10, "old", old) }},
		{"rename", func() ChangeType { return w.renameAt(10, "old", old) }},
		{"exit of an earlier life", func() ChangeType { return w.exitAt(10, 10, old) }},
		{"exit of an earlier thread", func() ChangeType { return w.exitAt(11, 10, old) }},
	} {
		want(t, c.name, c.do(), Nothing)
		want(t, c.name+": leader", w.task(10), before)
		want(t, c.name+": thread", w.task(11), thread)
	}
	want(t, "repaired", w.e.Stats().Repaired.Load(), 0)
	want(t, "unverified", w.e.Unverified(), 0)
}

// A snapshot can see a task before its own fork is stamped.
func TestForkStampedAfterTheLook(t *testing.T) {
	w := newWorld(t)
	w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, w.ticks(), "new"), w.seen(11, 10, 1, w.ticks(), "thread"))
	gen := w.task(10).Gen
	want(t, "fork", w.forkAt(10, 10, 1, w.now+sameLifeNs/2), Nothing)
	want(t, "fork of a thread", w.forkAt(11, 10, 1, w.now+sameLifeNs/2), Nothing)
	want(t, "gen", w.task(10).Gen, gen)
	want(t, "flags", w.task(10).Flags, 0)
	want(t, "much later", w.forkAt(10, 10, 1, w.now+3*sameLifeNs), Born)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
	w.gone(11)
}

// A life that a snapshot saw, its end, and the next life of the number, all
// within the time that a fork's stamp may be late.
func TestReuseRightAfterTheLook(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(w *world)
	}{
		{"after its exit", func(w *world) { w.exit(10, 10) }},
		{"after an exit older than the look", func(w *world) { w.exitAt(10, 10, w.now-3000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.now = w.now/tickNs*tickNs + 1000 // all in one tick
			w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, w.ticks(), "old"))
			gen := w.task(10).Gen
			c.before(w)
			want(t, "fork", w.fork(10, 10, 1), Born)
			if got := w.task(10).Gen; got == gen {
				t.Errorf("gen: got %d again", got)
			}
			want(t, "name", w.name(10), "init")
		})
	}
}

// The exit was told, yet the snapshot saw the task alive: on its way out, or a
// newer life that began in the same tick. The next check decides.
func TestExitThatContradictsTheSnapshot(t *testing.T) {
	for _, c := range []struct {
		name      string
		tid, tgid uint32
		answer    func(w *world) func(*Check) *Seen
		after     func(w *world)
		repaired  uint64
	}{
		{"it lives", 10, 10, func(w *world) func(*Check) *Seen {
			return func(*Check) *Seen { s := w.seen(10, 10, 1, w.task(10).StartTicks, "alive"); return &s }
		}, func(w *world) { w.alive(10) }, 0},
		{"it is gone", 10, 10, func(*world) func(*Check) *Seen { return absent }, func(w *world) { w.gone(10) }, 1},
		{"it is a zombie", 10, 10, func(w *world) func(*Check) *Seen {
			return func(*Check) *Seen {
				s := w.seen(10, 10, 1, w.task(10).StartTicks, "dead")
				s.State = 'Z'
				return &s
			}
		}, func(w *world) { w.zombie(10) }, 1},
		{"another has the number", 10, 10, func(w *world) func(*Check) *Seen {
			return func(*Check) *Seen { s := w.seen(10, 10, 1, w.task(10).StartTicks+1, "other"); return &s }
		}, func(w *world) { w.gone(10); want(w.T, "orphans: its fork is to come", w.e.Stats().Orphans.Load(), 0) }, 1},
		{"the thread lives", 21, 20, func(w *world) func(*Check) *Seen {
			return func(*Check) *Seen { s := w.seen(21, 20, 1, w.task(21).StartTicks, "alive"); return &s }
		}, func(w *world) { w.alive(21); want(w.T, "threads", w.task(20).Threads, 2) }, 0},
		{"the thread is gone", 21, 20, func(*world) func(*Check) *Seen { return absent },
			func(w *world) { w.gone(21); want(w.T, "threads", w.task(20).Threads, 1) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.now = w.now/tickNs*tickNs + tickNs/2
			tick := w.ticks()
			told := w.step()
			w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, tick, "a"), w.seen(20, 20, 1, tick, "b"), w.seen(21, 20, 1, tick, "c"))
			want(t, "exit", w.exitAt(c.tid, c.tgid, told), Nothing)
			w.alive(c.tid)
			want(t, "unverified", w.e.Unverified(), 1)
			if _, ok := w.e.NextCheck(told + verifyAfterNs - 1); ok {
				t.Error("checked at once, want a while after the exit")
			}
			w.check(c.answer(w))
			c.after(w)
			want(t, "repaired", w.e.Stats().Repaired.Load(), c.repaired)
			want(t, "unverified", w.e.Unverified(), 0)
		})
	}
}

// An exit that was applied before the snapshot, whose task is still to be seen.
func TestSnapshotSeesTaskOnItsWayOut(t *testing.T) {
	for _, c := range []struct {
		name      string
		tid, tgid uint32
	}{{"process", 10, 10}, {"thread", 21, 20}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, 7, "a"), w.seen(20, 20, 1, 8, "b"), w.seen(21, 20, 1, 9, "c"))
			w.exit(c.tid, c.tgid)
			w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, 7, "a"), w.seen(20, 20, 1, 8, "b"), w.seen(21, 20, 1, 9, "c"))
			w.alive(c.tid)
			w.check(absent)
			w.check(absent)
			w.gone(c.tid)
		})
	}
}

// What is left of a thread that a tracer holds is not listed: an unknown one is
// left out, a known one goes with the second look at it.
func TestMergeOfDeadThread(t *testing.T) {
	w := newWorld(t)
	left := func(*Check) *Seen {
		s := w.seen(11, 10, 1, 5, "traced")
		s.State = 'Z'
		return &s
	}
	leader := w.seen(10, 10, 1, 5, "a")
	w.merge(w.seen(1, 1, 0, 1, "init"), leader, *left(nil))
	w.gone(11)
	want(t, "unverified", w.e.Unverified(), 0)
	want(t, "threads", w.task(10).Threads, 1)

	w.merge(w.seen(1, 1, 0, 1, "init"), leader, w.seen(11, 10, 1, 5, "traced"))
	w.check(left)
	want(t, "threads", w.task(10).Threads, 2)
	w.merge(w.seen(1, 1, 0, 1, "init"), leader, *left(nil))
	w.check(left)
	w.gone(11)
	want(t, "threads", w.task(10).Threads, 1)
}

// A process ended, as far as events told; the snapshot shows a thread of it.
func TestMergeRevivesEndedProcess(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	tick := w.ticks()
	w.exit(10, 10)
	gen := w.task(10).Gen
	leader := w.seen(10, 10, 1, tick, "a")
	leader.State = 'Z'
	w.merge(leader, w.seen(11, 10, 1, tick, "b"))
	h := w.task(10)
	want(t, "gen", h.Gen, gen)
	want(t, "flags", h.Flags&(table.FlagZombie|table.FlagExitedLeader), table.FlagExitedLeader)
	want(t, "zombies", w.e.Zombies(), 0)
	want(t, "exit", w.exit(11, 10), Ended)
}

// The number was given to another life of which no event told.
func TestMergeReplacesAnotherLife(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.fork(12, 12, 1)
	w.rename(10, "secret")
	gen := w.task(10).Gen
	start := w.ticks() + 500
	w.merge(w.seen(10, 10, 1, start, "new"), w.seen(12, 10, 1, start, "thread"))
	w.gone(11)
	h := w.task(10)
	if h.Gen == gen {
		t.Errorf("gen: got %d again", gen)
	}
	want(t, "name", w.name(10), "new")
	want(t, "start", h.StartTicks, start)
	want(t, "start_ns of a life that no event told", h.StartNs, 0)
	want(t, "tgid of 12", w.task(12).TGID, 10)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 2)
}

// A late exit of the parent's number concerns an earlier life of it: the children
// that the snapshot saw with that parent may be that life's.
func TestLateExitDoubtsChildren(t *testing.T) {
	w := newWorld(t)
	told := w.step()
	w.now += 5 * tickNs
	w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, w.ticks(), "p"), w.seen(20, 20, 10, 2, "c"))
	w.exitAt(10, 10, told)
	want(t, "flags of the child", w.task(20).Flags, table.FlagPPIDEstimated)
	want(t, "unverified", w.e.Unverified(), 1)
	w.alive(10)
}

// A look is stamped before it is made: an exit that comes between the two is of
// an earlier life if that life's start is later still.
func TestExitBetweenStampAndLook(t *testing.T) {
	w := newWorld(t)
	w.merge(w.seen(1, 1, 0, 1, "init"), w.seen(10, 10, 1, w.ticks()+2, "new"), w.seen(11, 10, 1, w.ticks()+2, "thread"))
	want(t, "exit", w.exit(10, 10), Nothing)
	want(t, "exit of a thread", w.exit(11, 10), Nothing)
	w.alive(10)
	w.alive(11)
	want(t, "unverified", w.e.Unverified(), 0)
}

// A child seen with a parent that has ended is not the child of the next life
// under the parent's number.
func TestChildOfEndedParentWhoseNumberIsReused(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.exit(10, 10)
	start := w.ticks()
	w.merge(w.seen(1, 1, 0, start, "init"), w.seen(5, 5, 10, start, "child"), w.seen(10, 10, 1, start+500, "next"))
	want(t, "flags of the child", w.task(5).Flags, table.FlagPPIDEstimated)
	w.exit(10, 10)
	w.exit(1, 1)
	w.checked()
}
