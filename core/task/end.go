package task

import (
	"fmt"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// Exited is the wait status of a task that called exit(code).
func Exited(code uint8) unix.WaitStatus { return unix.WaitStatus(code) << 8 }

// Signaled is the wait status of a task that a signal ended.
func Signaled(sig unix.Signal) unix.WaitStatus { return unix.WaitStatus(sig) & 0x7f }

// Exit ends task tid with a status. The last thread of a process ends it: its
// children get another parent, and it stays as a zombie until its parent waits for
// it, unless that one ignores SIGCHLD or has set SA_NOCLDWAIT. The status of the
// process is that of the thread that exits last. ESRCH: no such task, or it has exited already.
func (e *Engine) Exit(tid uint32, status unix.WaitStatus) error {
	var p leftover
	e.lock()
	defer e.unlockAnd(&p)
	slot := e.findRequested(tid)
	if slot == 0 || e.recs.at(slot).flags&(exited|zapping) != 0 {
		return fmt.Errorf("exit of task %d: %w", tid, unix.ESRCH)
	}
	r := e.recs.at(slot)
	r.status = uint16(status)
	if l := e.recs.at(r.leader); l.flags&exited != 0 && l.members == 2 {
		l.status = r.status
	}
	e.exitLocked(slot, &p)
	e.wakeLocked()
	return nil
}

// ExitGroup ends all tasks of the process that task tid is of, as exit_group or a
// deadly signal does. ESRCH: no such task, or its process has ended.
func (e *Engine) ExitGroup(tid uint32, status unix.WaitStatus) error {
	var p leftover
	e.lock()
	defer e.unlockAnd(&p)
	slot := e.findRequested(tid)
	if slot == 0 || e.recs.at(e.recs.at(slot).leader).flags&(ended|zapping) != 0 {
		return fmt.Errorf("exit of the group of task %d: %w", tid, unix.ESRCH)
	}
	e.exitGroupLocked(e.recs.at(slot).leader, status, &p)
	e.wakeLocked()
	return nil
}

// exitGroupLocked ends a process that has not ended, its leader last.
func (e *Engine) exitGroupLocked(leader uint32, status unix.WaitStatus, p *leftover) {
	l := e.recs.at(leader)
	l.status = uint16(status)
	for l.next != leader {
		last := l.members == 2 && l.flags&exited != 0
		e.recs.at(l.next).status = uint16(status)
		e.exitLocked(l.next, p)
		if last {
			return
		}
	}
	e.exitLocked(leader, p)
}

// exitLocked ends one task, and the process with its last. The reaper of a namespace
// ends it first, and then waits for whoever in it has a parent outside.
func (e *Engine) exitLocked(slot uint32, p *leftover) {
	e.letGoLocked(slot)
	r := e.recs.at(slot)
	l := e.recs.at(r.leader)
	last := l.members == 1 || l.members == 2 && slot != r.leader && l.flags&exited != 0
	if ns := e.pids.NamespaceOf(r.leader); last && ns.Reaper() == r.leader {
		e.zapLocked(ns, r.leader, p)
		if e.populatedLocked(ns) {
			r.flags |= zapping
			l.flags |= zapping
			return
		}
	}
	e.endLocked(slot, p)
}

// endLocked is the end of exitLocked.
func (e *Engine) endLocked(slot uint32, p *leftover) {
	leader := e.recs.at(slot).leader
	var c Change
	e.exitedLocked(slot, 0, &c, p)
	if c.Type != Ended {
		return
	}
	e.reparentLocked(leader, p)
	if ns := e.pids.NamespaceOf(leader); ns.Reaper() == leader {
		ns.SetReaper(0)
	}
	e.notifyLocked(leader, p)
}

// letGoLocked gives up what an exiting task holds: the namespace of its children,
// and the caller that waits for it because of CLONE_VFORK.
func (e *Engine) letGoLocked(slot uint32) {
	if e.recs.at(slot).flags&requested != 0 {
		e.rejoinLocked(slot)
		e.resumeLocked(slot)
	}
}

// resumeLocked lets the caller of vfork go on whose child is in slot.
func (e *Engine) resumeLocked(slot uint32) {
	if len(e.vforks) == 0 {
		return
	}
	ref, ok := e.vforks[slot]
	if !ok {
		return
	}
	delete(e.vforks, slot)
	if r := e.recs.at(ref.Slot); r.gen == ref.Gen {
		r.flags &^= suspended
	}
}

// notifyLocked tells the parent that a process has ended. One that does not want
// to know, or is not there, lets it go at once (M5.4).
func (e *Engine) notifyLocked(leader uint32, p *leftover) {
	parent := e.recs.at(leader).parent
	if parent == 0 || e.recs.at(parent).flags&(ignores|noWait) != 0 {
		e.releaseLocked(leader, p)
	}
}

// reparentLocked gives the children of an ended process to its new parent, the
// oldest first. Those that have ended already are that one's to wait for.
func (e *Engine) reparentLocked(leader uint32, p *leftover) {
	l := e.recs.at(leader)
	if l.child == 0 {
		return
	}
	to := e.reaperOf(leader)
	ppid := uint32(0)
	if to != 0 {
		ppid = e.recs.at(to).tid
	}
	for child := l.child; child != 0; child = l.child {
		e.recs.adopt(child, to)
		e.update(child, func(h *table.Hot) { h.PPID = ppid })
		if e.recs.at(child).flags&ended != 0 {
			e.notifyLocked(child, p)
		}
	}
}

// reaperOf is who inherits the children of a process: the nearest subreaper above
// it in its namespace, else the namespace's reaper, else nobody. (A process with a
// living thread keeps them.)
func (e *Engine) reaperOf(leader uint32) uint32 {
	ns := e.pids.NamespaceOf(leader)
	for at := e.recs.at(leader).parent; at != 0 && e.pids.NamespaceOf(at) == ns; at = e.recs.at(at).parent {
		if e.recs.at(at).flags&(subreaper|ended) == subreaper {
			return at
		}
	}
	if reaper := ns.Reaper(); reaper != leader {
		return reaper
	}
	return 0
}

// zapLocked ends a namespace whose reaper has ended: nothing is allocated in it any
// more, and everything in it is killed. What the reaper would have to wait for goes.
func (e *Engine) zapLocked(ns *pid.Namespace, reaper uint32, p *leftover) {
	ns.Close()
	e.recs.at(reaper).flags |= ignores
	for nr, slot, ok := ns.Next(0); ok; nr, slot, ok = ns.Next(nr + 1) {
		r := e.recs.Peek(slot)
		if r == nil || r.tid == 0 || r.leader == reaper || e.recs.at(r.leader).flags&(ended|zapping) != 0 {
			continue
		}
		e.exitGroupLocked(r.leader, Signaled(unix.SIGKILL), p)
	}
	for child := e.recs.at(reaper).child; child != 0; {
		next := e.recs.at(child).sibNext
		if e.recs.at(child).flags&ended != 0 {
			e.releaseLocked(child, p)
		}
		child = next
	}
}

// populatedLocked tells whether a namespace that was ended has a task beside its
// reaper's: a zombie whose parent is outside, or a reaper that waits for such.
func (e *Engine) populatedLocked(ns *pid.Namespace) bool {
	for nr, slot, ok := ns.Next(0); ok; nr, slot, ok = ns.Next(nr + 1) {
		if r := e.recs.Peek(slot); r != nil && r.tid != 0 && r.leader != ns.Reaper() {
			return true
		}
	}
	return false
}

// emptiedLocked lets the reapers end that have waited for the process that was just
// released in ns, which has ended.
func (e *Engine) emptiedLocked(ns *pid.Namespace, p *leftover) {
	for ; ns != nil && ns.Closed(); ns = ns.Parent() {
		reaper := ns.Reaper()
		if reaper == 0 || e.recs.at(reaper).flags&zapping == 0 || e.populatedLocked(ns) {
			continue
		}
		l := e.recs.at(reaper)
		last := reaper
		if l.members > 1 {
			last = l.next
		}
		l.flags &^= zapping
		e.endLocked(last, p)
		e.wakeLocked()
	}
}

// SetSubreaper makes the process of task tid a subreaper, or none, as
// PR_SET_CHILD_SUBREAPER. ESRCH: no such task, or it has exited.
func (e *Engine) SetSubreaper(tid uint32, on bool) error {
	return e.setFlag(tid, subreaper, on)
}

// IgnoreChildren has the process of task tid ignore SIGCHLD, or not: children that
// end from now on go without being waited for. It lasts over exec.
func (e *Engine) IgnoreChildren(tid uint32, on bool) error { return e.setFlag(tid, ignores, on) }

// NoChildWait is the same by SA_NOCLDWAIT, which exec takes back.
func (e *Engine) NoChildWait(tid uint32, on bool) error { return e.setFlag(tid, noWait, on) }

func (e *Engine) setFlag(tid uint32, flag recordFlags, on bool) error {
	e.lock()
	defer e.unlock()
	slot, err := e.callerLocked(tid)
	if err != nil {
		return fmt.Errorf("change how task %d treats children: %w", tid, err)
	}
	leader := e.recs.at(e.recs.at(slot).leader)
	leader.flags &^= flag
	if on {
		leader.flags |= flag
	}
	return nil
}
