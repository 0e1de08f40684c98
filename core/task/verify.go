package task

import "github.com/kpidd/kpidd/core/table"

// verifyAfterNs is how long an estimate stands before it is looked up: most
// tasks are gone by then.
const verifyAfterNs = 100e6

// Check names a life that is to be looked up in /proc.
type Check struct {
	TID, TGID, Gen uint32
	slot           uint32
}

// NextCheck takes the oldest life that is to be verified and whose time has come,
// zombies first: of them only those come here that have lasted. Verified gives the
// answer.
func (e *Engine) NextCheck(nowNs uint64) (c Check, ok bool) {
	e.lock()
	defer e.unlock()
	slot := e.queues[zombieCheckQueue].head
	if slot != 0 {
		e.enqueue(zombieQueue, slot, e.recs.at(slot).queuedNs)
	} else if slot = e.queues[verifyQueue].head; slot != 0 && nowNs >= e.recs.at(slot).queuedNs+verifyAfterNs {
		e.dequeue(slot)
	} else {
		return c, false
	}
	r := e.recs.at(slot)
	return Check{TID: r.tid, TGID: r.tgid, Gen: r.gen, slot: slot}, true
}

// Unverified is the number of lives that wait for a check.
func (e *Engine) Unverified() int {
	e.lock()
	defer e.unlock()
	return int(e.queues[verifyQueue].n + e.queues[zombieCheckQueue].n)
}

// Verified takes over what /proc says of a life: s, or nil if it is not there.
// A life that is gone, or dead, without its exit having been told is asked about
// once more, since its record may still be in a ring, and then released, or ended,
// as repaired. So is, at once, one whose exit was told and that a snapshot
// contradicted. A number that has another life twice is an orphan: that life's
// fork was never told. ch tells of an end found in this way.
func (e *Engine) Verified(c *Check, s *Seen, nowNs uint64, ch *Change) {
	p := leftover{now: true}
	e.lock()
	defer e.unlockAnd(&p)
	ch.Type = Nothing
	r := e.recs.at(c.slot)
	zombie := r.flags&ended != 0
	if r.tid != c.TID || r.gen != c.Gen || r.queue != noQueue && !zombie {
		return // another life, or a decision that came first
	}
	var h table.Hot
	e.tab.Get(c.slot, &h)
	switch {
	case s != nil && sameStart(&h, s.StartTicks, e.ticks):
		r.flags &^= missed | execed
		e.seenLocked(c.slot, s)
		if !zombie {
			e.settleLocked(c.slot, s, nowNs, ch, &p)
		}
	case zombie: // reaped; ReapGone or the next fork finds out
	case r.flags&(doubtful|missed) == 0:
		r.flags |= missed
		e.enqueue(verifyQueue, c.slot, nowNs)
	default:
		if s != nil && r.flags&missed != 0 {
			e.stats.Orphans.Add(1)
		}
		ch.set(ThreadGone, &h)
		if r.leader == c.slot {
			ch.Type = Ended
		}
		e.repairLocked(c.slot, nowNs)
	}
}

// Sweep looks at up to most slots, where it stopped the last time and round again,
// and has the next check decide about the tasks in them that wait for none and that
// gone says nobody has any more: an exit that no record told of.
func (e *Engine) Sweep(most int, nowNs uint64, gone func(tgid, tid uint32) bool) {
	e.lock()
	defer e.unlock()
	for range min(most, int(e.recs.end())) {
		if e.swept++; e.swept >= e.recs.end() {
			e.swept = 0
		}
		if r := e.recs.at(e.swept); r.tid != 0 && r.queue == noQueue && gone(r.tgid, r.tid) {
			e.doubtLocked(e.swept, nowNs)
		}
	}
}

// doubtLocked has the next check decide whether a task is still there.
func (e *Engine) doubtLocked(slot uint32, nowNs uint64) {
	e.recs.at(slot).flags |= doubtful
	e.enqueue(verifyQueue, slot, nowNs)
}

// settleLocked decides about a life in doubt that is there, and begins to doubt
// one that is dead. One that has begun to exit stays in doubt until it has come to
// its end, which can be long.
func (e *Engine) settleLocked(slot uint32, s *Seen, nowNs uint64, ch *Change, p *leftover) {
	r := e.recs.at(slot)
	doubted := r.flags&doubtful != 0
	r.flags &^= doubtful
	switch {
	case r.flags&exited != 0:
	case !s.dead() && !s.Exiting:
	case !s.dead(), !doubted:
		e.doubtLocked(slot, nowNs)
	default: // a thread that is there nevertheless is held by a tracer
		e.stats.Repaired.Add(1)
		e.exitedLocked(slot, nowNs, ch, p)
		if ch.Type == Ended {
			e.doubtChildren(slot, nowNs)
		}
	}
}

// Postpone has a life that could not be looked up asked for again.
func (e *Engine) Postpone(c *Check, nowNs uint64) {
	e.lock()
	defer e.unlock()
	if r := e.recs.at(c.slot); r.tid == c.TID && r.gen == c.Gen && r.queue == noQueue {
		e.enqueue(verifyQueue, c.slot, nowNs)
	}
}
