package task

import (
	"fmt"

	"github.com/kpidd/kpidd/core/pid"
	"golang.org/x/sys/unix"
)

// Waited is a child that has ended, as Wait tells of it.
type Waited struct {
	PID    uint32 // number in the caller's namespace, 0: none has ended yet
	TGID   uint32 // number in the root namespace
	Status unix.WaitStatus
	Usage  Usage
}

// What Wait understands; the rest of what wait4 and waitid take means nothing here.
const waitOptions = unix.WNOHANG | unix.WNOWAIT | unix.WEXITED | unix.WUNTRACED | unix.WCONTINUED | unix.WNOTHREAD | unix.WALL

// Wait waits for a child of the process of task tid to end, and reaps it: the
// child with number id in the caller's namespace, with -1 any, with 0 any of the
// caller's process group, with -g any of group g. With WNOHANG it does not wait,
// with WNOWAIT it does not reap. The oldest child comes first.
//
// ECHILD: there is no such child. EINVAL: unknown options. ESRCH: no such task, or
// it has exited, also while it waited. EBUSY: it waits for its child of vfork.
func (e *Engine) Wait(tid uint32, id int32, options int) (Waited, error) {
	var p leftover
	e.lock()
	defer e.unlockAnd(&p)
	for {
		got, err := e.waitOnceLocked(tid, id, options, &p)
		if err != nil {
			return got, fmt.Errorf("wait for %d in task %d: %w", id, tid, err)
		}
		if got.PID != 0 || options&unix.WNOHANG != 0 {
			return got, nil
		}
		e.waitLocked()
	}
}

func (e *Engine) waitOnceLocked(tid uint32, id int32, options int, p *leftover) (got Waited, err error) {
	slot, err := e.callerLocked(tid)
	switch {
	case err != nil:
		return got, err
	case options&^waitOptions != 0:
		return got, unix.EINVAL
	case id == -1<<31:
		return got, unix.ESRCH
	}
	leader := e.recs.at(slot).leader
	ns := e.pids.NamespaceOf(slot)
	match, none := e.matcherLocked(ns, leader, id)
	if none {
		return got, unix.ECHILD
	}
	found := false
	for child := e.recs.at(leader).child; child != 0; child = e.recs.at(child).sibNext {
		if !match.fits(e, child) {
			continue
		}
		found = true
		if r := e.recs.at(child); r.flags&ended != 0 {
			got = e.waitedLocked(child, ns)
			if options&unix.WNOWAIT == 0 {
				e.releaseLocked(child, p)
			}
			return got, nil
		}
	}
	if !found {
		return got, unix.ECHILD
	}
	return got, nil
}

func (e *Engine) waitedLocked(child uint32, ns *pid.Namespace) Waited {
	got := Waited{PID: e.pids.Number(child, ns), TGID: e.recs.at(child).tid, Status: unix.WaitStatus(e.recs.at(child).status)}
	if e.recs.at(child).flags&requested != 0 {
		got.Usage = e.processUsageLocked(child)
	}
	return got
}

// matcher says which children are waited for: the one in slot, or those of group
// pgid, or with neither all.
type matcher struct{ slot, pgid uint32 }

// matcherLocked translates numbers of ns; none: they lead to nobody.
func (e *Engine) matcherLocked(ns *pid.Namespace, leader uint32, id int32) (m matcher, none bool) {
	switch {
	case id == -1:
		return m, false
	case id > 0:
		m.slot = ns.Find(uint32(id))
		return m, m.slot == 0
	case id == 0:
		m.pgid = e.who.At(leader).pgid()
	default:
		if slot := ns.Find(uint32(-id)); slot != 0 {
			m.pgid = e.pids.Number(slot, e.ids)
		}
	}
	return m, m.pgid == 0
}

func (m *matcher) fits(e *Engine, child uint32) bool {
	if m.slot != 0 {
		return m.slot == child
	}
	return m.pgid == 0 || e.recs.at(child).flags&requested != 0 && e.who.At(child).pgid() == m.pgid
}
