package task

import (
	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
)

// Seen is one task as a snapshot of /proc saw it.
type Seen struct {
	TID, TGID  uint32
	PPID       uint32
	StartTicks uint64
	State      byte
	KThread    bool
	Exiting    bool // has begun to exit; State follows later
	Comm       [16]byte
	AtNs       uint64 // CLOCK_MONOTONIC, before the look
}

// dead tells whether the task has exited.
func (s *Seen) dead() bool { return s.State == 'Z' || s.State == 'X' }

// MergeBegin starts merging a snapshot into the live table. Between MergeBegin
// and MergeEnd no event is applied; the caller keeps them.
func (e *Engine) MergeBegin() {
	e.lock()
	defer e.unlock()
	e.scan++
}

// MergeTask merges one task; the leader of a group comes before its threads. A
// life that is known keeps its generation; another life under its number is
// released first.
func (e *Engine) MergeTask(s *Seen) error {
	if s.TID == 0 || s.TID >= pid.Max {
		return nil
	}
	e.lock()
	defer e.unlock()
	slot := e.find(s.TID)
	if slot != 0 && !e.knownLife(slot, s) {
		e.repairLocked(slot, s.AtNs)
		slot = 0
	}
	if slot == 0 {
		if s.TID != s.TGID {
			leader := e.leaderOf(s.TGID)
			if leader == 0 || s.dead() {
				return nil // its process went meanwhile; or a tracer holds what is left of it
			}
			e.revivedLocked(leader, s.AtNs)
		}
		h := table.Hot{TID: s.TID, TGID: s.TGID}
		seenHot(&h, s)
		var err error
		if slot, err = e.bornLocked(&h, s.AtNs); err != nil {
			e.stats.Full.Add(1)
			return err
		}
		e.recs.at(slot).flags |= scanned
		e.doubtEndedParent(slot, s)
		if e.scan > 1 { // or its exit was told already, and it is on its way out
			e.enqueue(verifyQueue, slot, s.AtNs)
		}
	} else {
		r := e.recs.at(slot)
		r.seenNs, r.scan = s.AtNs, e.scan
		r.flags &^= missed
		if r.queue == verifyQueue && r.flags&doubtful == 0 {
			e.dequeue(slot)
		}
		e.seenLocked(slot, s)
	}
	e.mergeState(slot, s)
	return nil
}

// knownLife tells whether s is the life in slot. An estimated start is not
// before the true one, and at most as much later as a preempted fork takes.
func (e *Engine) knownLife(slot uint32, s *Seen) bool {
	var h table.Hot
	e.tab.Get(slot, &h)
	return h.TGID == s.TGID && sameStart(&h, s.StartTicks, e.ticks)
}

// sameStart compares a record's start with an exact one. An estimate is the time
// of the fork record, which the kernel stamps after it has set the start: up to
// a second later on a loaded machine, never earlier but for rounding.
func sameStart(h *table.Hot, exact, ticks uint64) bool {
	if h.Flags&table.FlagStartEstimated == 0 {
		return h.StartTicks == exact
	}
	return exact <= h.StartTicks+1 && h.StartTicks <= exact+ticks
}

// seenLocked brings a known life up to date with an exact look at it.
func (e *Engine) seenLocked(slot uint32, s *Seen) {
	e.update(slot, func(h *table.Hot) { seenHot(h, s) })
	if r := e.recs.at(slot); r.leader == slot {
		if parent := e.parentOf(s.PPID); parent != r.parent {
			e.recs.adopt(slot, parent)
		}
		e.doubtEndedParent(slot, s)
	}
}

// doubtEndedParent has the parent of a process looked up again if it was seen
// with one that has just ended: the kernel was about to give it away.
func (e *Engine) doubtEndedParent(slot uint32, s *Seen) {
	r := e.recs.at(slot)
	if r.leader == slot && r.parent == 0 && e.leaderOf(s.PPID) != 0 {
		e.doubtParent(slot, s.AtNs)
	}
}

func seenHot(h *table.Hot, s *Seen) {
	if s.TID == s.TGID {
		h.PPID = s.PPID
	}
	h.StartTicks, h.Comm = s.StartTicks, s.Comm
	h.Flags &^= table.FlagStartEstimated | table.FlagPPIDEstimated | table.FlagKThread
	if s.KThread {
		h.Flags |= table.FlagKThread
	}
}

// mergeState takes over whether the task has exited. What looked dead and is no
// zombie for long is looked at again by the check queues.
func (e *Engine) mergeState(slot uint32, s *Seen) {
	r := e.recs.at(slot)
	dead := s.dead()
	switch {
	case r.leader != slot:
		if dead || s.Exiting {
			e.doubtLocked(slot, s.AtNs)
		}
	case dead && r.flags&exited == 0:
		r.flags |= exited
		e.update(slot, markExitedLeader)
	case s.Exiting && r.flags&exited == 0: // its record is lost, or older than this look
		e.doubtLocked(slot, s.AtNs)
	case !dead && !s.Exiting && r.flags&exited != 0: // an exec by another thread
		e.stats.Repaired.Add(1)
		r.flags = r.flags&^(exited|ended) | doubtful
		e.update(slot, markAlive)
		e.enqueue(verifyQueue, slot, s.AtNs)
	}
}

// MergeEnd ends a merge: tasks that were known before startNs and that the
// snapshot did not hold are released, but for those that look, asked about each,
// finds there after all, with the start that it returns; processes that it showed
// as wholly dead become zombies; parents that the snapshot told before it told of
// them are linked, or looked up again. It returns how many tasks were released.
func (e *Engine) MergeEnd(startNs uint64, look func(tid, tgid uint32) (startTicks uint64, ok bool)) (released int) {
	p := leftover{now: true}
	e.lock()
	defer e.unlockAnd(&p)
	var h table.Hot
	for slot := uint32(1); slot < e.recs.end(); slot++ {
		r := e.recs.at(slot)
		if r.tid == 0 || r.scan == e.scan || r.seenNs >= startNs {
			continue
		}
		e.tab.Get(slot, &h)
		if start, ok := look(r.tid, r.tgid); !ok || !sameStart(&h, start, e.ticks) {
			e.vanishedLocked(slot, startNs, &p)
			released++
		} else if r.flags&exited == 0 { // the snapshot missed it: it may be about to go
			e.doubtLocked(slot, startNs)
		}
	}
	for walk := e.ids.Leaders(1); walk.Next(&h); {
		slot := e.find(h.TID)
		e.endIfLastLocked(slot, startNs)
		e.linkParentLocked(slot, startNs)
	}
	return released
}

// linkParentLocked finds the parent of a process that a snapshot saw before it.
func (e *Engine) linkParentLocked(slot uint32, nowNs uint64) {
	if e.recs.at(slot).parent != 0 {
		return
	}
	var h table.Hot
	e.tab.Get(slot, &h)
	if h.PPID == 0 || h.Flags&table.FlagPPIDEstimated != 0 {
		return
	}
	if parent := e.parentOf(h.PPID); parent != 0 {
		e.recs.adopt(slot, parent)
		return
	}
	e.doubtParent(slot, nowNs) // it went while the snapshot was taken
}
