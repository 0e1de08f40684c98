package task

import (
	"slices"
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

// A task whose exit no record tells of is found by a sweep, and released by the
// check that follows.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	start := w.ticks()
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, min(c.TGID-1, 1), start, "x")
		return &s
	})
	gone := func(tgid, tid uint32) bool { return tid == 11 }
	for range chunkRecords / 64 {
		w.e.Sweep(64, w.now, gone)
	}
	w.checked()
	want(t, "waiting for a check", w.e.Unverified(), 1)
	if asked := w.check(func(*Check) *Seen { return nil }); len(asked) != 1 || asked[0] != 11 {
		t.Errorf("looked up %v, want [11]", asked)
	}
	w.gone(11)
	w.alive(10)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
}

func TestEstimatesBecomeExact(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	f := ForkEvent{TID: 10, TGID: 10, PPID: 5, AtNs: w.step(), BootNs: w.now + bootNs}
	if err := w.e.ObserveFork(&f, &w.c); err != nil {
		t.Fatal(err)
	}
	w.fork(11, 10, 5)
	start := w.task(10).StartTicks
	want(t, "flags", w.task(10).Flags, table.FlagStartEstimated|table.FlagPPIDEstimated)
	if _, ok := w.e.NextCheck(w.now); ok {
		t.Error("a check at once: most tasks are gone after a tenth of a second")
	}
	looked := w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, 1, start-1, "exact")
		if c.TID == 1 {
			s.PPID = 0
		}
		return &s
	})
	if !slices.Equal(looked, []uint32{1, 10, 11}) {
		t.Errorf("looked up: got %v, want [1 10 11], oldest first", looked)
	}
	for _, tid := range []uint32{10, 11} {
		h := w.task(tid)
		want(t, "flags", h.Flags, 0)
		want(t, "start", h.StartTicks, start-1)
		want(t, "name", w.name(tid), "exact")
	}
	want(t, "parent", w.task(10).PPID, 1)
	want(t, "parent at fork", w.task(10).PPIDAtFork, 5)
	want(t, "parent of a thread", w.task(11).PPID, 0)
	want(t, "unverified", w.e.Unverified(), 0)
	w.exit(11, 10)
	want(t, "exit of a verified process", w.exit(10, 10), Ended)
}

func TestLifeGoneUntoldGoesAfterTwoChecks(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.fork(20, 20, 1)
	start := w.task(20).StartTicks
	answer := func(c *Check) *Seen {
		if c.TID != 20 {
			return nil
		}
		s := w.seen(20, 20, 1, start, "x")
		return &s
	}
	w.check(answer)
	w.alive(10)
	want(t, "repaired after one check", w.e.Stats().Repaired.Load(), 0)
	want(t, "asked once more", w.e.Unverified(), 2)
	w.check(answer)
	w.gone(10)
	w.gone(11)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
	want(t, "deaths", w.w.Header().Deaths, 1)
	w.alive(20)
	want(t, "orphans", w.e.Stats().Orphans.Load(), 0)
}

func TestLifeGoneOnceOnly(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	start := w.task(10).StartTicks
	w.check(absent)
	w.check(func(*Check) *Seen { s := w.seen(10, 10, 1, start, "x"); return &s })
	w.alive(10)
	want(t, "unverified", w.e.Unverified(), 0)
	w.fork(11, 11, 10)
	start = w.task(11).StartTicks
	w.check(absent)
	dead := func(*Check) *Seen { s := w.seen(11, 11, 10, start, "x"); s.State = 'Z'; return &s }
	w.check(dead)
	w.alive(11) // its exit may still be in a ring
	w.check(dead)
	w.zombie(11)
}

// The number has another life of which no event tells.
func TestAnotherLifeUntold(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	other := func(*Check) *Seen { s := w.seen(10, 10, 1, w.ticks()+500, "other"); return &s }
	w.check(other)
	w.alive(10)
	want(t, "orphans after one check", w.e.Stats().Orphans.Load(), 0)
	w.check(other)
	w.gone(10)
	want(t, "orphans", w.e.Stats().Orphans.Load(), 1)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
}

// The last thread beside an exited leader is gone, untold: the process has ended.
func TestLastThreadGoneUntold(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.fork(20, 20, 10)
	w.exit(10, 10)
	answer := func(c *Check) *Seen {
		if c.TID == 11 {
			return nil
		}
		s := w.seen(c.TID, c.TGID, map[uint32]uint32{10: 1, 20: 10}[c.TID], w.task(c.TID).StartTicks, "x")
		if c.TID == 10 {
			s.State = 'Z'
		}
		return &s
	}
	w.check(answer)
	w.check(answer)
	w.gone(11)
	w.zombie(10)
	want(t, "flags of the child", w.task(20).Flags&table.FlagPPIDEstimated, table.FlagPPIDEstimated)
}

func TestVerifiedTooLate(t *testing.T) {
	for _, c := range []struct {
		name    string
		between func(w *world)
	}{
		{"it ended", func(w *world) { w.exit(10, 10) }},
		{"its number has another life", func(w *world) { w.fork(10, 10, 1) }},
		{"its slot has another task", func(w *world) {
			w.exit(10, 10)
			w.e.ObserveFree(10, w.step())
			w.fork(11, 11, 1)
		}},
		{"it waits for another check", func(w *world) { w.fork(1, 1, 0); w.fork(10, 10, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.fork(10, 10, 1)
			w.now += verifyAfterNs
			check, ok := w.e.NextCheck(w.now)
			if !ok {
				t.Fatal("no check")
			}
			c.between(w)
			before := w.w.Header().Changes
			for range 3 {
				w.e.Verified(&check, nil, w.now, new(Change))
				w.checked()
			}
			want(t, "changes", w.w.Header().Changes, before)
		})
	}
}

// A task that has begun to exit, and whose exit record is lost, is asked about
// until it has come to its end, however long that takes.
func TestCheckOfTaskOnItsWayOut(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	start := w.ticks()
	exiting := func(tid uint32) Seen {
		s := w.seen(tid, 10, 1, start, "x")
		s.Exiting = true
		return s
	}
	w.merge(w.seen(10, 10, 1, start, "x"), exiting(11))
	for range 5 {
		looked := w.check(func(c *Check) *Seen { s := exiting(c.TID); s.Exiting = c.TID == 11; return &s })
		if !slices.Contains(looked, 11) {
			t.Fatalf("looked up %v, want 11 again", looked)
		}
	}
	w.check(absent)
	w.gone(11)
	want(t, "threads", w.task(10).Threads, 1)
}
