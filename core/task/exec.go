package task

import "github.com/kpidd/kpidd/core/table"

// ObserveExec applies an exec of process tgid. Sources tell the leader's exit
// before it when another thread called execve, and never an exit of that thread's
// own number: so the leader lives again, and every thread that is not newer than
// the exec goes. The proc connector may tell that exit after the exec instead: an
// exit that follows before the next check is doubted. comm is used if hasComm is
// set.
func (e *Engine) ObserveExec(tgid uint32, comm [16]byte, hasComm bool, atNs uint64, c *Change) {
	p := leftover{now: true}
	e.lock()
	defer e.unlockAnd(&p)
	c.Type = Nothing
	leader := e.leaderOf(tgid)
	if leader == 0 {
		e.stats.Orphans.Add(1)
		return
	}
	others := e.collapseLocked(leader, atNs, &p)
	if atNs <= e.recs.at(leader).seenNs {
		e.endIfLastLocked(leader, atNs) // a snapshot has seen the new image, or its end
		return
	}
	replaced := others && e.recs.at(leader).flags&exited == 0
	e.execLocked(leader, comm, hasComm, atNs)
	if replaced {
		e.recs.at(leader).flags |= execed
		e.enqueue(verifyQueue, leader, atNs)
	}
	var h table.Hot
	e.tab.Get(leader, &h)
	c.set(Execed, &h)
}

// collapseLocked releases every thread of the group that was known before atNs,
// and reports whether there was any.
func (e *Engine) collapseLocked(leader uint32, atNs uint64, p *leftover) (any bool) {
	for slot := e.recs.at(leader).next; slot != leader; {
		next := e.recs.at(slot).next
		if e.recs.at(slot).seenNs < atNs {
			e.releaseLocked(slot, p)
			any = true
		}
		slot = next
	}
	return any
}

func (e *Engine) execLocked(leader uint32, comm [16]byte, hasComm bool, nowNs uint64) {
	e.revivedLocked(leader, nowNs) // its last exit was told, yet it lives
	r := e.recs.at(leader)
	r.flags &^= exited | doubtful | missed
	e.ids.Verify(r.tid, true) // M1.6: whoever execs leads the group from now on
	e.update(leader, func(h *table.Hot) {
		markAlive(h)
		h.Flags &^= table.FlagKThread
		if hasComm {
			h.Comm = comm
		}
	})
	e.tab.Bump(&e.tab.Header().Execs, 1)
}
