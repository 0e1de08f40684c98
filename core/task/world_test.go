package task

import (
	"os"
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

const (
	userHz = 100
	tickNs = 1e9 / userHz
	bootNs = 3600e9 // CLOCK_BOOTTIME - CLOCK_MONOTONIC of the tests
)

// world is an engine and a clock that the test moves. Each event comes a
// microsecond after the one before, and the invariants are checked after it.
type world struct {
	*testing.T
	e   *Engine
	w   *table.Writer
	now uint64
	c   Change // what the last event changed
	m   moment
}

func newWorld(t *testing.T) *world {
	w, err := table.NewAnonymous()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return worldOver(t, w)
}

func worldOver(t *testing.T, w *table.Writer) *world {
	return &world{T: t, e: New(w, userHz), w: w, now: 5e9}
}

// shmWorld is a world whose table is a file, so that its memory can run out.
func shmWorld(t *testing.T) *world {
	path, err := os.MkdirTemp("/dev/shm", "kpidd-test-")
	if err != nil {
		t.Skip("no directory under /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	dir, err := table.Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Release() })
	w, err := table.Create(dir, table.Origin{ClockTicks: userHz})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return worldOver(t, w)
}

func (w *world) step() uint64 {
	w.now += 1000
	return w.now
}

func (w *world) checked() {
	w.Helper()
	checkInvariants(w.T, w.e, w.m)
}

func (w *world) fork(tid, tgid, ppid uint32) ChangeType {
	w.Helper()
	return w.forkAt(tid, tgid, ppid, w.step())
}

func (w *world) forkAt(tid, tgid, ppid uint32, at uint64) ChangeType {
	w.Helper()
	if tid != tgid {
		ppid = tgid // a thread is made by its own group
	}
	f := ForkEvent{TID: tid, TGID: tgid, PPID: ppid, ParentKnown: true, AtNs: at, BootNs: at + bootNs}
	if err := w.e.ObserveFork(&f, &w.c); err != nil {
		w.Fatal(err)
	}
	w.checked()
	return w.c.Type
}

func (w *world) exit(tid, tgid uint32) ChangeType {
	w.Helper()
	return w.exitAt(tid, tgid, w.step())
}

func (w *world) exitAt(tid, tgid uint32, at uint64) ChangeType {
	w.Helper()
	w.e.ObserveExit(tid, tgid, at, at+bootNs, &w.c)
	w.checked()
	return w.c.Type
}

func (w *world) exec(tgid uint32, name string) ChangeType {
	w.Helper()
	return w.execAt(tgid, name, w.step())
}

func (w *world) execAt(tgid uint32, name string, at uint64) ChangeType {
	w.Helper()
	w.e.ObserveExec(tgid, comm(name), name != "", at, &w.c)
	w.checked()
	return w.c.Type
}

func (w *world) renameAt(tid uint32, name string, at uint64) ChangeType {
	w.Helper()
	w.e.ObserveRename(tid, comm(name), at, &w.c)
	w.checked()
	return w.c.Type
}

func (w *world) rename(tid uint32, name string) ChangeType {
	w.Helper()
	return w.renameAt(tid, name, w.step())
}

// seen is a look at a living task, now.
func (w *world) seen(tid, tgid, ppid uint32, startTicks uint64, name string) Seen {
	return Seen{TID: tid, TGID: tgid, PPID: ppid, StartTicks: startTicks, State: 'S', Comm: comm(name), AtNs: w.step()}
}

// merge takes a snapshot of these tasks. gone is what /proc does not show when
// it is asked again at the end; all other tasks are found there.
func (w *world) merge(tasks ...Seen) (released int) {
	w.Helper()
	start := w.step()
	w.e.MergeBegin()
	w.m = merging
	defer func() { w.m = between }()
	listed := map[uint32]bool{}
	for i := range tasks {
		tasks[i].AtNs = w.step()
		listed[tasks[i].TID] = true
		if err := w.e.MergeTask(&tasks[i]); err != nil {
			w.Fatal(err)
		}
		w.checked()
	}
	released = w.e.MergeEnd(start, func(tid, _ uint32) (uint64, bool) { return 0, false })
	checkInvariants(w.T, w.e, between)
	return released
}

// ticks is start_ticks of a task that starts now.
func (w *world) ticks() uint64 { return (w.now + bootNs) / tickNs }

func (w *world) task(tid uint32) table.Hot {
	w.Helper()
	h, ok := w.e.Task(tid)
	if !ok {
		w.Fatalf("task %d: got none, want its record", tid)
	}
	return h
}

func (w *world) gone(tid uint32) {
	w.Helper()
	if h, ok := w.e.Task(tid); ok {
		w.Fatalf("task %d: got a record of gen %d, want none", tid, h.Gen)
	}
}

func (w *world) zombie(tid uint32) {
	w.Helper()
	if h := w.task(tid); h.State != 'Z' || h.Flags&table.FlagZombie == 0 {
		w.Fatalf("task %d: state %q, flags %#x; want a zombie", tid, h.State, h.Flags)
	}
}

func (w *world) alive(tid uint32) {
	w.Helper()
	if h := w.task(tid); h.State != 0 || h.Flags&(table.FlagZombie|table.FlagExitedLeader) != 0 {
		w.Fatalf("task %d: state %q, flags %#x; want it alive", tid, h.State, h.Flags)
	}
}

// check has every life that waits for it looked up, a little later.
func (w *world) check(look func(c *Check) *Seen) (looked []uint32) {
	w.Helper()
	w.now += 2 * verifyAfterNs
	for {
		c, ok := w.e.NextCheck(w.now)
		if !ok {
			return looked
		}
		looked = append(looked, c.TID)
		w.e.Verified(&c, look(&c), w.now, new(Change))
		w.checked()
	}
}

func absent(*Check) *Seen { return nil }

func comm(name string) (c [16]byte) {
	copy(c[:15], name)
	return c
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// name is the comm of task tid.
func (w *world) name(tid uint32) string {
	w.Helper()
	h := w.task(tid)
	return string(h.Name())
}
