package task

import (
	"fmt"
	"sync/atomic"

	"github.com/kpidd/kpidd/arch"
)

// Exec gives the process of task tid a new image named comm. All other threads go.
// Called for a thread that is no leader, the thread takes the leader's slot, number
// and start. ESRCH: no such task, or it has exited. EBUSY: it waits for its child
// of vfork.
func (e *Engine) Exec(tid uint32, comm [16]byte) error {
	var p leftover
	e.lock()
	defer e.unlockAnd(&p)
	slot, err := e.callerLocked(tid)
	if err != nil {
		return fmt.Errorf("exec by task %d: %w", tid, err)
	}
	leader := e.recs.at(slot).leader
	if slot != leader {
		e.replaceLeaderLocked(slot, leader)
	}
	for other := e.recs.at(leader).next; other != leader; other = e.recs.at(leader).next {
		e.letGoLocked(other)
		e.releaseLocked(other, &p)
	}
	l := e.recs.at(leader)
	e.resumeLocked(leader)
	l.flags = l.flags&^noWait | newImage
	l.status = 0
	e.execLocked(leader, comm, true, 0)
	e.wakeLocked()
	return nil
}

// replaceLeaderLocked has the leader's slot be the thread's that is in slot: what
// belongs to the task moves, what belongs to the process stays. The old leader goes
// with the thread's slot.
func (e *Engine) replaceLeaderLocked(slot, leader uint32) {
	w, l := e.who.At(slot), e.who.At(leader)
	arch.StoreRelease64(&l.uids, atomic.LoadUint64(&w.uids))
	arch.StoreRelease64(&l.gids, atomic.LoadUint64(&w.gids))
	e.letGoLocked(leader)
	if w.unshared() {
		e.unshared[leader] = e.unshared[slot]
		delete(e.unshared, slot)
		w.setUnshared(false)
		l.setUnshared(true)
	}
	e.resumeLocked(slot)
	e.recs.at(leader).flags &^= suspended
}
