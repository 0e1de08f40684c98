package task

import (
	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
)

// ForkEvent is a fork as a source tells it.
type ForkEvent struct {
	TID, TGID   uint32
	PPID        uint32 // tgid of the task that called clone, or of the parent where ParentKnown
	CreatorTID  uint32 // that task, 0 if not told
	ParentKnown bool   // PPID is the parent that /proc shows
	AtNs        uint64 // CLOCK_MONOTONIC
	BootNs      uint64 // the same moment on CLOCK_BOOTTIME
}

// sameLifeNs bounds how much later than a snapshot's look at a new task its own
// fork record can be stamped: the kernel shows the number first, then stamps.
const sameLifeNs = 50e6

// ObserveFork applies a fork. A life that had the number before is released
// first, and counted as repaired: its end, or its reaping, was never told. A fork
// older than what a snapshot saw is the birth of that life, or of an earlier one.
// table.ErrFull: the task was left out.
func (e *Engine) ObserveFork(f *ForkEvent, c *Change) error {
	e.lock()
	defer e.unlock()
	c.Type = Nothing
	if f.TID == 0 || f.TID >= pid.Max {
		e.stats.Orphans.Add(1)
		return nil
	}
	ticks := e.bootTicks(f.BootNs)
	if old := e.find(f.TID); old != 0 {
		if e.sameLife(old, f, ticks) {
			return nil
		}
		e.repairLocked(old, f.AtNs)
	}
	h := table.Hot{
		TID: f.TID, TGID: f.TGID, PPID: f.PPID, PPIDAtFork: f.PPID,
		StartNs: f.BootNs, StartTicks: ticks, Flags: table.FlagStartEstimated,
	}
	var creator table.Hot
	if slot := e.creatorOf(f); slot != 0 {
		e.tab.Get(slot, &creator)
	}
	h.Comm = creator.Comm
	h.Flags |= creator.Flags & table.FlagKThread
	typ, ppid := Born, f.PPID
	if f.TID != f.TGID {
		typ = ThreadBorn
		leader := e.leaderOf(f.TGID)
		if leader == 0 {
			e.stats.Orphans.Add(1)
			return nil
		}
		e.revivedLocked(leader, f.AtNs)
		var l table.Hot
		e.tab.Get(leader, &l)
		ppid = l.PPID
		h.PPID, h.PPIDAtFork = 0, 0 // the leader's record has them
	} else if !f.ParentKnown || e.parentOf(f.PPID) == 0 {
		h.Flags |= table.FlagPPIDEstimated
	}
	slot, err := e.bornLocked(&h, f.AtNs)
	if err != nil {
		e.stats.Full.Add(1)
		if typ == ThreadBorn {
			e.endIfLastLocked(e.leaderOf(f.TGID), f.AtNs) // as before it was revived
		}
		return err
	}
	e.enqueue(verifyQueue, slot, f.AtNs)
	c.set(typ, &h)
	c.PPID = ppid
	return nil
}

// creatorOf is the slot of the task that a new one has its name from: the one that
// called clone. Where the source does not tell it, a thread's is taken for the
// leader of its own group, whose parent PPID may be, and a process's for its
// parent. 0 if it is unknown.
func (e *Engine) creatorOf(f *ForkEvent) uint32 {
	if f.CreatorTID != 0 {
		if slot := e.find(f.CreatorTID); slot != 0 {
			return slot
		}
	}
	if f.TID != f.TGID {
		return e.leaderOf(f.TGID)
	}
	return e.leaderOf(f.PPID)
}

// sameLife tells whether a fork is not newer than the life in slot. A life whose
// exit was told has had its fork told before.
func (e *Engine) sameLife(slot uint32, f *ForkEvent, ticks uint64) bool {
	r := e.recs.at(slot)
	if f.AtNs <= r.seenNs {
		return true
	}
	if r.flags&(scanned|exited|doubtful|missed) != scanned || r.tgid != f.TGID || f.AtNs-r.seenNs > sameLifeNs {
		return false
	}
	var h table.Hot
	e.tab.Get(slot, &h)
	return ticks-h.StartTicks <= sameLifeNs*e.ticks/1e9+1
}

// bornLocked is the way into the engine of a task whose number the kernel chose:
// with the number, group, parent, start and name in h, known since seenNs. The
// record comes before the number.
func (e *Engine) bornLocked(h *table.Hot, seenNs uint64) (slot uint32, err error) {
	ref, err := e.pids.NewSlot()
	if err != nil {
		return 0, err
	}
	leader := h.TID == h.TGID
	if w := e.who.Peek(ref.Slot); w != nil {
		w.clear() // of a task that was made by request
	}
	r := e.storeLocked(ref, h, 0, seenNs)
	if err := e.pids.Insert(ref, h.TID, leader); err != nil {
		r.tid = 0
		e.pids.PutBack(ref)
		return 0, err
	}
	if leader {
		e.joinParentLocked(ref.Slot, e.parentOf(h.PPID))
	} else {
		e.joinThreadsLocked(ref.Slot, e.leaderOf(h.TGID))
	}
	return ref.Slot, nil
}

// storeLocked fills the record of a new task and publishes it.
func (e *Engine) storeLocked(ref pid.Ref, h *table.Hot, flags recordFlags, seenNs uint64) *record {
	r := e.recs.reserve(ref.Slot)
	*r = record{tid: h.TID, tgid: h.TGID, gen: ref.Gen, flags: flags, seenNs: seenNs, scan: e.scan}
	h.Gen = ref.Gen
	if h.TID == h.TGID {
		h.Threads = 1
	}
	e.tab.Put(ref.Slot, h)
	return r
}

// joinParentLocked attaches a new process to its pid object and to its parent.
func (e *Engine) joinParentLocked(slot, parent uint32) {
	r, hdr := e.recs.at(slot), e.tab.Header()
	r.leader, r.next, r.prev, r.members = slot, slot, slot, 1
	e.pids.Attach(slot, pid.PID)
	e.pids.Attach(slot, pid.TGID)
	e.recs.adopt(slot, parent)
	e.tab.Bump(&hdr.Births, 1)
	e.tab.Bump(&hdr.Processes, 1)
	e.tab.Bump(&hdr.Tasks, 1)
	e.tab.Bump(&hdr.Changes, 1)
}

// joinThreadsLocked attaches a new thread to its pid object and to its group.
func (e *Engine) joinThreadsLocked(slot, leader uint32) {
	hdr := e.tab.Header()
	e.pids.Attach(slot, pid.PID)
	e.recs.joinGroup(slot, leader)
	e.publishMembers(leader)
	e.tab.Bump(&hdr.Tasks, 1)
	e.tab.Bump(&hdr.Changes, 1)
}

// find is the slot of the task with number tid, 0 if no task has it.
func (e *Engine) find(tid uint32) uint32 {
	slot := e.ids.Find(tid)
	if slot == 0 {
		return 0
	}
	if r := e.recs.Peek(slot); r == nil || r.tid != tid {
		return 0 // its task is not there yet, or not any more
	}
	return slot
}

// leaderOf is the slot of the process with this number, 0 if there is none.
func (e *Engine) leaderOf(tgid uint32) uint32 {
	slot := e.find(tgid)
	if slot == 0 || e.recs.at(slot).tgid != tgid {
		return 0
	}
	return slot
}

// parentOf is the slot of a process that can have children: 0 if it is unknown,
// or has ended and so has given them away.
func (e *Engine) parentOf(tgid uint32) uint32 {
	slot := e.leaderOf(tgid)
	if slot != 0 && e.recs.at(slot).flags&ended != 0 {
		return 0
	}
	return slot
}

// publishMembers brings the published thread count of a leader up to date.
func (e *Engine) publishMembers(leader uint32) {
	e.update(leader, func(h *table.Hot) { h.Threads = e.recs.at(leader).members })
}
