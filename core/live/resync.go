package live

import (
	"context"
	"errors"
	"time"

	"github.com/kpidd/kpidd/core/live/scan"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
)

const (
	resyncBackOffMax = 400 * time.Millisecond // between repairs while losses go on
	fullRetryNs      = 5e9                    // between attempts to take in tasks that had no room
	pollEveryMin     = time.Second
	pollShare        = 50      // a poll takes at most 1/50 of the time
	heldMax          = 1 << 20 // events kept during a snapshot; beyond, they wait in the kernel's rings
)

// repairIfNeeded takes a snapshot when events were lost, when a poll is due, or
// when there may be room again.
func (f *Follower) repairIfNeeded(ctx context.Context) error {
	now := table.MonotonicNs()
	if f.info.Poll {
		if now-f.lastPoll < f.pollEvery {
			return nil
		}
		return f.snapshot(ctx, false)
	}
	if f.fullSince != 0 && now-f.fullSince > fullRetryNs {
		f.fullSince = 0
		f.wantResync = true
	}
	if !f.wantResync || now < f.notBefore {
		if !f.wantResync && now > f.notBefore+uint64(resyncBackOffMax) {
			f.backOff = 0
		}
		return nil
	}
	if err := f.snapshot(ctx, false); err != nil {
		return err
	}
	f.backOff = min(max(2*f.backOff, 25*time.Millisecond), resyncBackOffMax)
	f.notBefore = table.MonotonicNs() + uint64(f.backOff)
	return nil
}

// snapshot compares the table with /proc without losing what happens meanwhile
// (DESIGN.md, decision 7). Events read before T0 are applied as they come. From
// T0 on they are held. /proc is walked and merged: each life that it shows is
// taken over with the moment at which it was looked at, so that the engine knows
// which held events are older; what it does not show and was known before T0 is
// looked up once more and released. Then the held events are applied, but for
// forks and names older than T0: who was born before T0 and lives is in the
// snapshot. Exits of any age count.
func (f *Follower) snapshot(ctx context.Context, first bool) error {
	t0 := table.MonotonicNs()
	f.wantResync = false
	f.held = f.held[:0]
	if !first {
		if _, err := f.drain(f.apply); err != nil { // all that is older than T0
			return err
		}
	}
	w := walk{Follower: f, ctx: ctx}
	stats, err := w.run()
	switch {
	case ctx.Err() != nil:
		return nil // stopped in the middle
	case err != nil && (first || w.dead != nil):
		return err
	case err != nil:
		f.putOff(err)
		return nil
	case w.full != nil && first:
		return w.full // a daemon that begins without half of the machine helps nobody
	case w.full != nil:
		f.tableFull(w.full)
	}
	f.Engine.MergeEnd(t0, w.lookUp)
	f.replay(t0)
	f.metrics.SnapNs.Store(table.MonotonicNs() - t0)
	f.metrics.Vanished.Add(uint64(stats.Vanished))
	f.finished(first, t0)
	return nil
}

// walk is one walk over /proc, merged into the engine as it goes.
type walk struct {
	*Follower
	ctx    context.Context
	looked uint64 // CLOCK_MONOTONIC before the look at the next task
	asked  int    // look-ups by number
	full   error  // the table had no room for a task
	dead   error  // of the source
}

func (w *walk) run() (scan.Stats, error) {
	w.Engine.MergeBegin()
	w.looked = table.MonotonicNs()
	stats, err := w.scanner.Scan(w.visit, w.hold)
	if err == nil {
		err = w.hold() // so that nothing from before T0 is left for later
	}
	return stats, err
}

func (w *walk) visit(t *scan.Task) {
	seen := seenOf(t, w.looked)
	if err := w.Engine.MergeTask(&seen); errors.Is(err, table.ErrFull) {
		w.full = err
	}
	w.looked = table.MonotonicNs()
}

// hold takes what the source has for later, so that the kernel's buffers do not
// overrun. Its error ends the walk.
func (w *walk) hold() error {
	w.turn()
	if len(w.held) < heldMax {
		if _, w.dead = w.drain(w.keep); w.dead != nil {
			return w.dead
		}
	}
	return w.ctx.Err()
}

func (f *Follower) keep(ev *Event) { f.held = append(f.held, *ev) }

// lookUp returns the start of task tid of group tgid, if it is there.
func (w *walk) lookUp(tid, tgid uint32) (startTicks uint64, ok bool) {
	if w.asked++; w.asked%256 == 0 {
		_ = w.hold() // a dead source shows itself again, and a stop is near anyway
	}
	if w.Proc.TaskStat(tgid, tid, &w.stat) != nil {
		return 0, false
	}
	return w.stat.StartTicks, true
}

// replay applies what was held.
func (f *Follower) replay(t0 uint64) {
	for i := range f.held {
		ev := &f.held[i]
		if ev.TimeNs < t0 && (ev.Kind == Fork || ev.Kind == Comm || ev.Kind == Exec) {
			continue
		}
		f.apply(ev)
	}
	f.orphans = f.Engine.Stats().Orphans.Load() // a task may die before it is in any snapshot
	f.held = f.held[:0]
	if cap(f.held) > 1<<14 {
		f.held = nil
	}
}

// putOff gives up a comparison that could not read /proc, as when the daemon has
// run out of file descriptors. What was held is applied, the table stays stale,
// and the next attempt comes later.
func (f *Follower) putOff(err error) {
	f.logf("compare the table with /proc: %v; it is tried again", err)
	f.replay(0)
	f.lastPoll = table.MonotonicNs()
	f.stale(f.lastPoll)
}

// finished tells readers that the table is whole, unless more was lost while the
// snapshot was taken.
func (f *Follower) finished(first bool, t0 uint64) {
	h := f.Table.Header()
	if f.info.Poll {
		took := f.metrics.SnapNs.Load()
		f.lastPoll, f.pollEvery = t0, max(uint64(pollEveryMin), took*pollShare)
	}
	if f.wantResync {
		return
	}
	f.Table.Set(&h.StaleSinceNs, 0)
	if first || f.info.Poll {
		return
	}
	f.Table.Bump(&h.Resyncs, 1)
	r := Record{TimeNs: table.MonotonicNs(), Type: RecResync}
	f.Feed.Publish(&r)
	f.Feed.Flush()
}

func seenOf(t *scan.Task, atNs uint64) task.Seen {
	return task.Seen{
		TID: t.TID, TGID: t.TGID, PPID: t.PPID, StartTicks: t.StartTicks,
		State: t.State, KThread: t.Flags&procfile.PFKThread != 0, Exiting: t.Flags&procfile.PFExiting != 0,
		Comm: t.Comm, AtNs: atNs,
	}
}
