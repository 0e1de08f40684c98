package task

import (
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/internal/lab"
)

// hold measures for how long mu is held, and how long the work after it takes,
// while it is switched on. Off, which is the rule, it costs a look at a flag and
// reads no clock.
type hold struct {
	on    atomic.Bool
	since time.Time // mu was taken; zero: not measured; guarded by mu

	held, deferred lab.Histogram
}

// lock takes the task-list lock. The pid lock comes after it: whoever holds that
// one must not call this.
func (e *Engine) lock() {
	e.pids.AssertOutside()
	e.mu.Lock()
	if e.hold.on.Load() {
		e.hold.since = time.Now()
	}
}

func (e *Engine) unlock() {
	e.holdEnds()
	e.mu.Unlock()
}

// holdEnds counts a hold that is about to end.
func (e *Engine) holdEnds() {
	if !e.hold.since.IsZero() {
		e.hold.held.Add(uint64(time.Since(e.hold.since)))
		e.hold.since = time.Time{}
	}
}

// waitLocked lets go of the lock until some process has ended.
func (e *Engine) waitLocked() {
	e.waiting++
	e.holdEnds()
	e.childEnded.Wait()
	e.waiting--
}

// wakeLocked wakes those who wait for a process to end.
func (e *Engine) wakeLocked() {
	if e.waiting > 0 {
		e.childEnded.Broadcast()
	}
}

// Measure switches the measuring of times on or off.
func (e *Engine) Measure(on bool) { e.hold.on.Store(on) }

// HoldNs is a quantile, 0 to 1, of how long the task-list lock was held while
// Measure was on, in nanoseconds; 0 if nothing was measured.
func (e *Engine) HoldNs(q float64) uint64 { return e.hold.held.Quantile(q) }

// DeferredNs is the same for the work that was done after the lock.
func (e *Engine) DeferredNs(q float64) uint64 { return e.hold.deferred.Quantile(q) }

// SetBaseline chooses between the release of M5 and the old one, for measurements.
func (e *Engine) SetBaseline(r lab.Release) {
	e.lock()
	defer e.unlock()
	e.baseline = r
}
