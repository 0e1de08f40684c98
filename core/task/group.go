package task

import (
	"fmt"

	"github.com/kpidd/kpidd/core/pid"
	"golang.org/x/sys/unix"
)

// SetSID makes the process of task tid the leader of a new session and of a new
// process group in it, as setsid, and returns the session's number in the root
// namespace. EPERM: it leads a session already, or some process is of the group with
// its number. ESRCH: no such task, or it has exited. EBUSY as Clone.
func (e *Engine) SetSID(tid uint32) (sid uint32, err error) {
	var p leftover
	e.lock()
	defer e.unlockAnd(&p)
	slot, err := e.callerLocked(tid)
	if err == nil {
		sid, err = e.setSIDLocked(e.recs.at(slot).leader, &p)
	}
	if err != nil {
		return 0, fmt.Errorf("set the session of task %d: %w", tid, err)
	}
	return sid, nil
}

func (e *Engine) setSIDLocked(leader uint32, p *leftover) (sid uint32, err error) {
	r := e.recs.at(leader)
	if r.flags&leads != 0 || e.pids.Users(leader, pid.PGID) != 0 {
		return 0, unix.EPERM
	}
	r.flags |= leads
	w := e.who.At(leader)
	e.changeLocked(w.sid(), leader, pid.SID, p)
	e.changeLocked(w.pgid(), leader, pid.PGID, p)
	w.setIDs(r.tid, r.tid)
	return r.tid, nil
}

// changeLocked has a process leave the group or session with number from for the
// object in slot to (M5.5).
func (e *Engine) changeLocked(from, to uint32, role pid.Role, p *leftover) {
	if from == 0 {
		e.pids.Attach(to, role)
		return
	}
	if old := e.ids.Find(from); e.pids.Change(old, to, role) {
		p.pid(old)
	}
}

// SetPGID moves a process to a process group, as setpgid: numbers are those of the
// caller's namespace, nr 0 is the caller's process, pgid 0 the group with its own
// number.
//
// ESRCH: no such caller; or nr is neither the caller nor a child of it. EINVAL: nr
// leads no thread group. EPERM: nr leads a session, or a child is of another
// session, or there is no such group in the caller's session. EACCES: a child that
// has called exec. EBUSY as Clone.
func (e *Engine) SetPGID(tid, nr, pgid uint32) error {
	var p leftover
	e.lock()
	defer e.unlockAnd(&p)
	slot, err := e.callerLocked(tid)
	if err == nil {
		err = e.setPGIDLocked(slot, nr, pgid, &p)
	}
	if err != nil {
		return fmt.Errorf("set the process group of %d to %d by task %d: %w", nr, pgid, tid, err)
	}
	return nil
}

func (e *Engine) setPGIDLocked(slot, nr, pgid uint32, p *leftover) error {
	ns := e.pids.NamespaceOf(slot)
	caller := e.recs.at(slot).leader
	if nr == 0 {
		nr = e.pids.Number(caller, ns)
	}
	if pgid == 0 {
		pgid = nr
	}
	target := ns.Find(nr)
	if err := e.mayMoveLocked(caller, target); err != nil {
		return err
	}
	group := target
	if pgid != nr {
		group = ns.Find(pgid)
		// The session of a group is that of the process that had its number last: while
		// the group exists, that process could not leave the session.
		if group == 0 || e.pids.Users(group, pid.PGID) == 0 || e.who.At(group).sid() != e.who.At(caller).sid() {
			return unix.EPERM
		}
	}
	w := e.who.At(target)
	e.changeLocked(w.pgid(), group, pid.PGID, p)
	w.setIDs(e.pids.Number(group, e.ids), w.sid())
	return nil
}

// mayMoveLocked tells whether caller, a leader's slot, may move the process in slot
// target to another group.
func (e *Engine) mayMoveLocked(caller, target uint32) error {
	if target == 0 {
		return unix.ESRCH
	}
	r := e.recs.Peek(target)
	switch {
	case r == nil || r.tid == 0 || r.flags&requested == 0:
		return unix.ESRCH
	case r.leader != target:
		return unix.EINVAL
	case target == caller:
	case r.parent != caller:
		return unix.ESRCH
	case e.who.At(target).sid() != e.who.At(caller).sid():
		return unix.EPERM
	case r.flags&newImage != 0:
		return unix.EACCES
	}
	if r.flags&leads != 0 {
		return unix.EPERM
	}
	return nil
}
