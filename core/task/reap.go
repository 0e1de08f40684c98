package task

import (
	"fmt"

	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// Wait reaps one ended child of process parent: child, or any if child is 0. It
// returns the child's number, or 0 if there are children but none has ended.
// ECHILD: there is none. ESRCH: no such parent.
func (e *Engine) Wait(parent, child uint32) (reaped uint32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.leaderOf(parent)
	if p == 0 {
		return 0, fmt.Errorf("wait in process %d: %w", parent, unix.ESRCH)
	}
	found := false
	for slot := e.recs.at(p).child; slot != 0; slot = e.recs.at(slot).sibNext {
		r := e.recs.at(slot)
		if child != 0 && r.tid != child {
			continue
		}
		found = true
		if r.flags&ended != 0 {
			reaped = r.tid
			e.releaseLocked(slot)
			return reaped, nil
		}
	}
	if !found {
		return 0, fmt.Errorf("wait in process %d: %w", parent, unix.ECHILD)
	}
	return 0, nil
}

// ObserveFree applies the reaping of an ended process, for sources that tell it.
func (e *Engine) ObserveFree(tgid uint32, atNs uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot := e.leaderOf(tgid); slot != 0 && e.recs.at(slot).flags&ended != 0 && e.recs.at(slot).seenNs < atNs {
		e.releaseLocked(slot)
	}
}

// zombieLastsNs is after what time a zombie is not just about to be reaped.
const zombieLastsNs = 1e9

// ReapGone looks at up to most zombies, longest unseen first, and releases those
// whose number gone says nobody has any more. Those that have stayed for a second,
// and of which something is an estimate, get a check; while they wait for it, which
// takes long when they are many, they are looked at too, and first. It returns how
// many it looked at. Most sources do not tell of reaping, so the follower asks the
// kernel.
func (e *Engine) ReapGone(most int, nowNs uint64, gone func(tgid uint32) bool) (looked int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	checks := min(most/2, int(e.queues[zombieCheckQueue].n))
	zombies := min(most-checks, int(e.queues[zombieQueue].n))
	for range checks {
		slot := e.queues[zombieCheckQueue].head
		r := e.recs.at(slot)
		if gone(r.tid) {
			e.releaseLocked(slot)
		} else {
			e.enqueue(zombieCheckQueue, slot, r.queuedNs)
		}
	}
	for range zombies {
		slot := e.queues[zombieQueue].head
		since := e.recs.at(slot).queuedNs
		var h table.Hot
		switch e.tab.Get(slot, &h); {
		case gone(h.TID):
			e.releaseLocked(slot)
		case nowNs > since+zombieLastsNs && h.Flags&(table.FlagStartEstimated|table.FlagPPIDEstimated) != 0:
			e.enqueue(zombieCheckQueue, slot, since)
		default:
			e.enqueue(zombieQueue, slot, since)
		}
	}
	return checks + zombies
}

// releaseLocked takes a task out of the table. With a leader go its threads, for
// a group without a leader cannot be.
func (e *Engine) releaseLocked(slot uint32) {
	r := e.recs.at(slot)
	hdr := e.tab.Header()
	if r.leader == slot {
		for r.next != slot {
			e.releaseLocked(r.next)
		}
		e.recs.adopt(slot, 0)
		for r.child != 0 {
			e.recs.adopt(r.child, 0)
		}
		e.tab.Set(&hdr.Processes, hdr.Processes-1)
	} else {
		e.recs.leaveGroup(slot)
		e.publishMembers(r.leader)
	}
	e.dequeue(slot)
	e.ids.Detach(r.tid)
	r.tid = 0
	e.tab.FreeSlot(slot)
	e.tab.Set(&hdr.Tasks, hdr.Tasks-1)
	e.tab.Bump(&hdr.Changes, 1)
}

// repairLocked releases a life that the kernel's word contradicts.
func (e *Engine) repairLocked(slot uint32, nowNs uint64) {
	e.stats.Repaired.Add(1)
	e.vanishedLocked(slot, nowNs)
}

// vanishedLocked releases a life whose end was not told, with what follows from
// an end.
func (e *Engine) vanishedLocked(slot uint32, nowNs uint64) {
	leader := e.recs.at(slot).leader
	if slot == leader {
		if e.recs.at(slot).flags&ended == 0 {
			e.tab.Bump(&e.tab.Header().Deaths, 1)
		}
		e.doubtChildren(slot, nowNs)
		e.releaseLocked(slot)
		return
	}
	e.releaseLocked(slot)
	e.endIfLastLocked(leader, nowNs)
}

// endIfLastLocked ends a process of which only the exited leader is left.
func (e *Engine) endIfLastLocked(leader uint32, nowNs uint64) {
	if l := e.recs.at(leader); l.flags&(exited|ended) == exited && l.members == 1 {
		e.endedLocked(leader, nowNs)
		e.doubtChildren(leader, nowNs)
	}
}
