package pid

import (
	"sync"
	"sync/atomic"

	"github.com/kpidd/kpidd/arch"
)

// lock is the pid lock. It is the innermost of the engine's locks: a goroutine
// that holds it takes no other. Builds with the tag invariants remember who holds it, so
// that Space.AssertOutside can tell.
type lock struct {
	mu    sync.Mutex
	owner atomic.Uint64 // arch.Goroutine of the holder, 0 if nobody, or not known
}

func (l *lock) lock() {
	l.assertOutside()
	l.mu.Lock()
	if checkOrder {
		l.owner.Store(arch.Goroutine())
	}
}

func (l *lock) tryLock() bool {
	if !l.mu.TryLock() {
		return false
	}
	if checkOrder {
		l.owner.Store(arch.Goroutine())
	}
	return true
}

func (l *lock) unlock() {
	if checkOrder {
		l.owner.Store(0)
	}
	l.mu.Unlock()
}

func (l *lock) assertOutside() {
	if checkOrder {
		if self := arch.Goroutine(); self != 0 && l.owner.Load() == self {
			panic("pid: lock order: the pid lock is the innermost, and is held already")
		}
	}
}
