package task

import (
	"slices"
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

func TestReapGone(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	start := w.ticks()
	for tid := uint32(10); tid < 16; tid++ {
		w.fork(tid, tid, 1)
	}
	w.fork(20, 20, 1)
	w.check(func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, min(c.TID-1, 1), start, "x")
		return &s
	})
	for tid := uint32(10); tid < 16; tid++ {
		w.exit(tid, tid)
	}
	var asked []uint32
	reap := func(most int) int {
		asked = asked[:0]
		n := w.e.ReapGone(most, w.now, func(tgid uint32) bool {
			asked = append(asked, tgid)
			return tgid%2 == 0
		})
		w.checked()
		return n
	}
	want(t, "looked", reap(2), 2)
	if !slices.Equal(asked, []uint32{10, 11}) {
		t.Errorf("asked: got %v, want [10 11], longest unseen first", asked)
	}
	want(t, "looked", reap(2), 2)
	if !slices.Equal(asked, []uint32{12, 13}) {
		t.Errorf("asked: got %v, want [12 13]", asked)
	}
	want(t, "looked: no more than there are", reap(100), 4)
	if !slices.Equal(asked, []uint32{14, 15, 11, 13}) {
		t.Errorf("asked: got %v, want [14 15 11 13]", asked)
	}
	want(t, "zombies", w.e.Zombies(), 3)
	want(t, "looked at nothing", reap(0), 0)
	w.alive(20)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 0)
}

// A zombie that stays is verified like a task that lives.
func TestZombieIsVerified(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(20, 20, 10)
	start := w.ticks()
	w.exit(20, 20)
	w.exit(10, 10) // 20 is the reaper's now
	stays := func(uint32) bool { return false }
	answer := func(c *Check) *Seen {
		s := w.seen(c.TID, c.TGID, min(c.TID-1, 1), start-1, "x")
		if c.TID != 1 {
			s.State = 'Z'
		}
		return &s
	}
	w.check(answer)
	want(t, "start before it was asked about", w.task(20).StartTicks, start)
	want(t, "looked", w.e.ReapGone(10, w.now, stays), 2)
	w.checked()
	if looked := w.check(answer); len(looked) != 0 {
		t.Errorf("looked up %v before they had lasted for a second", looked)
	}
	w.now += zombieLastsNs + 1
	want(t, "looked", w.e.ReapGone(10, w.now, stays), 2)
	w.checked()
	want(t, "zombies", w.e.Zombies(), 2)
	want(t, "unverified", w.e.Unverified(), 2)
	looked := w.check(answer)
	if !slices.Equal(looked, []uint32{20, 10}) {
		t.Errorf("looked up: got %v, want [20 10]", looked)
	}
	w.zombie(20)
	h := w.task(20)
	want(t, "start", h.StartTicks, start-1)
	want(t, "parent", h.PPID, 1)
	want(t, "flags", h.Flags, table.FlagZombie)
	want(t, "looked again", w.e.ReapGone(10, w.now, stays), 2)
	want(t, "unverified", w.e.Unverified(), 0)
	want(t, "zombies", w.e.Zombies(), 2)
}

// A zombie that waits for its check is reaped like any other: with many of them
// the checks take long.
func TestReapGoneWhileChecked(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	for tid := uint32(20); tid < 24; tid++ {
		w.fork(tid, tid, 10)
		w.exit(tid, tid)
	}
	w.exit(10, 10) // the four are the reaper's now
	w.now += zombieLastsNs + 1
	want(t, "looked", w.e.ReapGone(10, w.now, func(uint32) bool { return false }), 5)
	w.checked()
	want(t, "looked: half for those that wait for a check", w.e.ReapGone(4, w.now, func(uint32) bool { return true }), 2)
	want(t, "looked", w.e.ReapGone(10, w.now, func(uint32) bool { return true }), 3)
	w.checked()
	want(t, "zombies", w.e.Zombies(), 0)
}

func TestObserveFree(t *testing.T) {
	w := newWorld(t)
	old := w.now
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	w.e.ObserveFree(10, w.step()) // lives
	w.e.ObserveFree(11, w.step()) // a thread
	w.e.ObserveFree(99, w.step()) // nobody
	w.checked()
	w.exit(11, 10)
	w.exit(10, 10)
	w.e.ObserveFree(10, old) // of the life before
	w.zombie(10)
	w.e.ObserveFree(10, w.step())
	w.gone(10)
	w.checked()
}
