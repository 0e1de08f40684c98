package task

import "github.com/kpidd/kpidd/core/table"

// stateZombie is the letter of /proc/PID/stat for a task that has exited. Other
// states are not known without sampling and are published as 0.
const stateZombie = 'Z'

// ObserveExit applies the exit of a task: at the end of a process with the
// process's last task, whichever it is. Exits of unknown tasks, and exits older
// than the start of the life that has the number, are late and end nothing; one
// that a snapshot contradicts makes the task doubtful, and the next check decides.
// A late one may end an earlier process of that number, whose children a snapshot
// saw: they get looked up again.
func (e *Engine) ObserveExit(tid, tgid uint32, atNs, bootNs uint64, c *Change) {
	p := leftover{now: true}
	e.lock()
	defer e.unlockAnd(&p)
	c.Type = Nothing
	slot := e.find(tid)
	if slot == 0 || e.recs.at(slot).tgid != tgid {
		if leader := e.leaderOf(tgid); leader != 0 && atNs <= e.recs.at(leader).seenNs {
			e.doubtChildren(leader, atNs)
		}
		return
	}
	r := e.recs.at(slot)
	if r.flags&exited != 0 {
		return
	}
	if atNs <= r.seenNs || r.flags&scanned != 0 {
		var h table.Hot
		e.tab.Get(slot, &h)
		earlier := e.bootTicks(bootNs) < h.StartTicks
		if earlier || atNs <= r.seenNs {
			e.lateExitLocked(slot, atNs, earlier)
			return
		}
	}
	if r.flags&execed != 0 {
		e.doubtLocked(slot, atNs)
		return
	}
	leader := r.leader
	e.exitedLocked(slot, atNs, c, &p)
	if c.Type == Ended {
		e.doubtChildren(leader, atNs)
	}
}

// lateExitLocked applies an exit that is older than a look at the life in slot,
// or, if earlier, than that life.
func (e *Engine) lateExitLocked(slot uint32, atNs uint64, earlier bool) {
	if e.recs.at(slot).leader == slot {
		e.doubtChildren(slot, atNs)
	}
	if !earlier {
		e.doubtLocked(slot, atNs)
	}
}

// exitedLocked takes a task out of its group, or marks its leader; it ends the
// process with the last of them (I3).
func (e *Engine) exitedLocked(slot uint32, nowNs uint64, c *Change, p *leftover) {
	r := e.recs.at(slot)
	leader := r.leader
	l := e.recs.at(leader)
	var h table.Hot
	if slot != leader {
		e.tab.Get(slot, &h)
		c.set(ThreadGone, &h)
		e.releaseLocked(slot, p)
		if l.flags&exited == 0 || l.members > 1 {
			return
		}
	} else {
		r.flags |= exited
		if l.members > 1 {
			e.update(slot, markExitedLeader)
			return
		}
	}
	e.endedLocked(leader, nowNs)
	e.tab.Get(leader, &h)
	c.set(Ended, &h)
}

// endedLocked makes a process whose every task has exited a zombie.
func (e *Engine) endedLocked(leader uint32, nowNs uint64) {
	e.recs.at(leader).flags |= exited | ended
	e.update(leader, markZombie)
	e.enqueue(zombieQueue, leader, nowNs)
	e.tab.Bump(&e.tab.Header().Deaths, 1)
}

// revivedLocked takes back that a process has ended, if it was thought so: the
// kernel tells of a task in it. The next check tells whether it is the same life.
func (e *Engine) revivedLocked(leader uint32, nowNs uint64) {
	r := e.recs.at(leader)
	if r.flags&ended == 0 {
		return
	}
	e.stats.Repaired.Add(1)
	r.flags &^= ended
	e.update(leader, markExitedLeader)
	e.enqueue(verifyQueue, leader, nowNs)
}

func markExitedLeader(h *table.Hot) {
	h.State = stateZombie
	h.Flags = h.Flags&^table.FlagZombie | table.FlagExitedLeader
}

func markZombie(h *table.Hot) {
	h.State = stateZombie
	h.Flags = h.Flags&^table.FlagExitedLeader | table.FlagZombie
}

func markOrphan(h *table.Hot) { h.Flags |= table.FlagPPIDEstimated }

func markAlive(h *table.Hot) {
	h.State = 0
	h.Flags &^= table.FlagExitedLeader | table.FlagZombie
}

// doubtChildren has the parent of every child of an ended process looked up
// again: no record tells who got them.
func (e *Engine) doubtChildren(leader uint32, nowNs uint64) {
	for child := e.recs.at(leader).child; child != 0; child = e.recs.at(leader).child {
		e.recs.adopt(child, 0)
		e.doubtParent(child, nowNs)
	}
}

// doubtParent has the parent of one process looked up again, some time after
// nowNs; a zombie's only if it is still there when ReapGone comes to it.
func (e *Engine) doubtParent(slot uint32, nowNs uint64) {
	e.update(slot, markOrphan)
	if e.recs.at(slot).flags&ended == 0 {
		e.enqueue(verifyQueue, slot, nowNs)
	}
}
