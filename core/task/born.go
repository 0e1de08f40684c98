package task

import (
	"fmt"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// CloneArgs asks for a new task with a given number.
type CloneArgs struct {
	TID    uint32 // the number
	TGID   uint32 // the group to join; TID for a new process
	Parent uint32 // process: tgid of its parent, 0 for a first process
	Comm   [16]byte
}

// Clone makes a task. EINVAL: no pid number. EEXIST: taken. ESRCH: the parent or
// the group does not exist or has ended. ErrFull (of package table): no room.
func (e *Engine) Clone(a CloneArgs) (gen uint32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	refuse := func(err error) (uint32, error) { return 0, fmt.Errorf("clone task %d: %w", a.TID, err) }
	switch {
	case a.TID == 0 || a.TID >= pid.Max:
		return refuse(unix.EINVAL)
	case e.ids.Find(a.TID) != 0:
		return refuse(unix.EEXIST)
	}
	in, need := a.Parent, a.Parent != 0
	if a.TGID != a.TID {
		in, need, a.Parent = a.TGID, true, 0
	}
	if need {
		if l := e.leaderOf(in); l == 0 || e.recs.at(l).flags&ended != 0 {
			return refuse(unix.ESRCH)
		}
	}
	boot := table.BoottimeNs()
	h := table.Hot{
		TID: a.TID, TGID: a.TGID, PPID: a.Parent, PPIDAtFork: a.Parent,
		StartNs: boot, StartTicks: e.bootTicks(boot), Comm: a.Comm,
	}
	slot, err := e.bornLocked(&h, table.MonotonicNs())
	if err != nil {
		return refuse(err)
	}
	return e.recs.at(slot).gen, nil
}

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
	e.mu.Lock()
	defer e.mu.Unlock()
	c.Type = Nothing
	if f.TID == 0 || f.TID >= pid.Max {
		e.stats.Orphans.Add(1)
		return nil
	}
	ticks := e.bootTicks(f.BootNs)
	if old := e.ids.Find(f.TID); old != 0 {
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
		if slot := e.ids.Find(f.CreatorTID); slot != 0 {
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

// bornLocked is the one way into the table: a task with the number, group,
// parent, start and name in h, known since seenNs.
func (e *Engine) bornLocked(h *table.Hot, seenNs uint64) (slot uint32, err error) {
	slot, err = e.tab.NewSlot()
	if err != nil {
		return 0, err
	}
	r := e.recs.reserve(slot)
	e.gen++
	h.Gen = e.gen
	*r = record{tid: h.TID, tgid: h.TGID, gen: h.Gen, seenNs: seenNs, scan: e.scan}
	leader := h.TID == h.TGID
	if leader {
		h.Threads = 1
	}
	e.tab.Put(slot, h)
	if err := e.ids.Attach(h.TID, slot, leader); err != nil {
		r.tid = 0
		e.tab.FreeSlot(slot)
		return 0, err
	}
	hdr := e.tab.Header()
	if leader {
		r.leader, r.next, r.prev, r.members = slot, slot, slot, 1
		e.recs.adopt(slot, e.parentOf(h.PPID))
		e.tab.Bump(&hdr.Births, 1)
		e.tab.Bump(&hdr.Processes, 1)
	} else {
		l := e.leaderOf(h.TGID)
		e.recs.joinGroup(slot, l)
		e.publishMembers(l)
	}
	e.tab.Bump(&hdr.Tasks, 1)
	e.tab.Bump(&hdr.Changes, 1)
	return slot, nil
}

// leaderOf is the slot of the process with this number, 0 if there is none.
func (e *Engine) leaderOf(tgid uint32) uint32 {
	slot := e.ids.Find(tgid)
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
