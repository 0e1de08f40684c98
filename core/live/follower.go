package live

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/core/live/scan"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
)

// Errors of choosing and following a source.
var (
	ErrUnknownSource = errors.New("unknown source")
	ErrNoSource      = errors.New("no event source can be used")
)

// The pace of the loop. Events are looked at on a tick and not as they come: the
// wake-up is what costs (4,428 ns an event against 148 on a tick).
const (
	tickFlow = 5 * time.Millisecond  // while many events come
	tickIdle = 50 * time.Millisecond // the longest that an event stays unseen
	flow     = 64                    // events a tick that count as many
)

// Config is what a Follower works with.
type Config struct {
	Source Source
	Engine *task.Engine
	Table  *table.Writer
	Feed   *Feed
	Proc   *procfile.Proc
	Ready  func() // the table is whole for the first time and published; may be nil
	Logf   func(format string, args ...any)
}

// Follower keeps the engine in step with the kernel. Run belongs to one
// goroutine, which it locks to its OS thread; Metrics may be read by any.
type Follower struct {
	Config
	metrics Metrics

	scanner *scan.Scanner
	info    Info
	buf     []Event
	held    []Event // read while a snapshot is taken, applied after it

	bootOffset uint64 // CLOCK_BOOTTIME - CLOCK_MONOTONIC, read again on every turn
	change     task.Change
	stat       procfile.Stat

	orphans    uint64 // of the engine, as last looked at
	wantResync bool
	notBefore  uint64 // no resync earlier, CLOCK_MONOTONIC
	backOff    time.Duration
	lastPoll   uint64
	pollEvery  uint64
	lastTurn   uint64
	fullSince  uint64
	logged     map[string]uint64 // last time of each rate-limited line
}

// Metrics are the follower's live counters.
type Metrics struct {
	Wakeups  atomic.Uint64 // returns from Source.Wait
	BusyNs   atomic.Uint64 // time spent reading and applying events
	Events   atomic.Uint64 // events in that time
	SnapNs   atomic.Uint64 // duration of the last snapshot
	Vanished atomic.Uint64 // tasks that went while a snapshot looked at them
}

// NewFollower makes a follower. The source is open already: what it has seen
// since then is not lost.
func NewFollower(c Config) *Follower {
	return &Follower{
		Config: c, info: c.Source.Info(), scanner: scan.New(c.Proc),
		buf: make([]Event, 1024), logged: map[string]uint64{},
	}
}

// Metrics returns the live counters.
func (f *Follower) Metrics() *Metrics { return &f.metrics }

// settle is how long the rings run before the first snapshot: a record of a task
// that dies while one CPU's ring is mapped and another's is not would be missed.
const settle = 20 * time.Millisecond

// Run takes the first snapshot, publishes the table, and follows the source until
// ctx is done, when it returns nil.
func (f *Follower) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer context.AfterFunc(ctx, f.Source.Wake)()
	f.turn()
	if !f.info.Poll {
		time.Sleep(settle)
	}
	if err := f.snapshot(ctx, true); err != nil {
		return fmt.Errorf("first snapshot: %w", err)
	}
	if ctx.Err() != nil {
		return nil // the snapshot is not whole: nobody is to read it
	}
	if err := f.Table.Publish(); err != nil {
		return err
	}
	if f.Ready != nil {
		f.Ready()
	}
	for tick := tickFlow; ctx.Err() == nil; {
		if err := f.Source.Wait(tick); err != nil {
			return fmt.Errorf("wait for events of %s: %w", f.info.Name, err)
		}
		f.metrics.Wakeups.Add(1)
		now := f.turn()
		n, err := f.drain(f.apply)
		if err != nil {
			return err
		}
		f.noteOrphans(now)
		f.Table.Set(&f.Table.Header().Repaired, f.Engine.Stats().Repaired.Load())
		f.checkEstimates()
		f.reapZombies(now)
		f.sweep(now)
		f.Feed.Flush()
		if err := f.repairIfNeeded(ctx); err != nil {
			return err
		}
		tick = nextTick(tick, n)
		f.lastTurn = now
	}
	// What the source still holds was seen by the kernel before the stop.
	_, err := f.drain(f.apply)
	f.Feed.Flush()
	return err
}

func nextTick(tick time.Duration, events int) time.Duration {
	switch {
	case events >= flow:
		return tickFlow
	case events > 0:
		return min(max(tick, tickFlow), 2*tickFlow)
	}
	return min(2*tick, tickIdle)
}

// turn begins a turn of the loop: heartbeat and clocks.
func (f *Follower) turn() (now uint64) {
	f.Table.Beat()
	f.bootOffset = bootOffset()
	return table.MonotonicNs()
}

// bootOffset is CLOCK_BOOTTIME - CLOCK_MONOTONIC. The clocks are read one after
// the other; of a few pairs the closest counts, since a preemption between the
// two would make every start of the turn seem later by as much.
func bootOffset() (offset uint64) {
	const closeNs = 10_000
	best := ^uint64(0)
	for range 8 {
		before := table.MonotonicNs()
		boot := table.BoottimeNs()
		after := table.MonotonicNs()
		if after-before < best {
			best = after - before
			offset = boot - before - best/2
		}
		if best <= closeNs {
			break
		}
	}
	return offset
}

// drain reads everything that the source has up to now and hands it to sink.
func (f *Follower) drain(sink func(*Event)) (n int, err error) {
	start := table.MonotonicNs()
	for more := true; more; {
		var k int
		k, more, err = f.Source.Drain(f.buf)
		for i := range f.buf[:k] {
			sink(&f.buf[i])
		}
		n += k
		if err != nil {
			return n, fmt.Errorf("read events of %s: %w", f.info.Name, err)
		}
	}
	if n > 0 {
		f.Table.Bump(&f.Table.Header().Events, uint64(n))
		f.metrics.Events.Add(uint64(n))
		f.metrics.BusyNs.Add(table.MonotonicNs() - start)
	}
	return n, nil
}

// noteOrphans has the table repaired if an event named a task that it should
// have known: something was missed that no source told of.
func (f *Follower) noteOrphans(now uint64) {
	n := f.Engine.Stats().Orphans.Load()
	if n != f.orphans && f.fullSince == 0 { // a full table leaves tasks out, and says so
		f.stale(now)
	}
	f.orphans = n
}

// logf writes a line at most once a minute for each format.
func (f *Follower) logf(format string, args ...any) {
	now := table.MonotonicNs()
	if last, ok := f.logged[format]; f.Logf == nil || ok && now-last < uint64(time.Minute) {
		return
	}
	f.logged[format] = now
	f.Logf(format, args...)
}
