package task

import (
	"time"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

// Hooks are called for each task that was released, after the task-list lock is
// let go, by the goroutine whose call released it, and before the task's pid object
// is freed. They may call the engine. Nil: nothing to do.
type Hooks struct {
	Flush func(object pid.Ref) // drop the directory entries of this pid object
	Sink  func(r Released)     // account for the task
}

// Released is a task that is gone.
type Released struct {
	Object    pid.Ref // its pid object; the number may be somebody else's by now
	TID, TGID uint32
	Status    unix.WaitStatus
	Usage     Usage // of a leader: with what its threads used that ended before
}

// SetHooks gives the engine its hooks, before it has tasks.
func (e *Engine) SetHooks(h Hooks) { e.hooks = h }

// stateDead is the state of a record whose task has been released.
const stateDead = 'X'

// leftover is what releases leave to do after the unlock (M5.1): by value, on the
// caller's stack, since the slots may be another's as soon as they are freed. The
// pair of slot and generation pins a pid object: nothing else ever has the same.
// It spills to the heap only where a call ends many tasks.
type leftover struct {
	now    bool // the kernel chose the numbers: slots are reused at once
	early  bool // the baseline: the lock is still held
	nTasks int
	nPids  int
	tasks  [2]Released
	pids   [8]uint32 // whose last user of any role was detached
	more   []Released
	spill  []uint32
}

func (p *leftover) task(r Released) {
	if p.nTasks < len(p.tasks) {
		p.tasks[p.nTasks] = r
		p.nTasks++
		return
	}
	p.more = append(p.more, r)
}

func (p *leftover) pid(slot uint32) {
	if p.nPids < len(p.pids) {
		p.pids[p.nPids] = slot
		p.nPids++
		return
	}
	p.spill = append(p.spill, slot)
}

// unlockAnd lets go of the task-list lock and does what is left; the baseline does
// it before.
func (e *Engine) unlockAnd(p *leftover) {
	if p.nPids == 0 && p.nTasks == 0 {
		e.unlock()
		return
	}
	if p.early = e.baseline == lab.UnderLock; p.early {
		p.finish(e)
		e.unlock()
		return
	}
	e.unlock()
	if !e.hold.on.Load() {
		p.finish(e)
		return
	}
	start := time.Now()
	p.finish(e)
	e.hold.deferred.Add(uint64(time.Since(start)))
}

// finish does what is left, in the order of M5.2.
func (p *leftover) finish(e *Engine) {
	for i := range p.nTasks {
		e.hooks.released(&p.tasks[i])
	}
	for i := range p.more {
		e.hooks.released(&p.more[i])
	}
	p.free(e, p.pids[:p.nPids])
	if len(p.spill) > 0 {
		p.free(e, p.spill)
	}
	e.stats.Deferred.Add(uint64(p.nTasks + len(p.more)))
}

func (h *Hooks) released(r *Released) {
	if h.Flush != nil {
		h.Flush(r.Object)
	}
	if h.Sink != nil {
		h.Sink(*r)
	}
}

func (p *leftover) free(e *Engine, slots []uint32) {
	switch {
	case p.now:
		e.pids.FreeNow(slots)
	case p.early:
		e.pids.Free(slots)
	default:
		e.pids.Retire(slots)
	}
}

// releaseLocked takes a task out of the engine. With a leader go its threads, for
// a group without a leader cannot be. What need not be done under the lock is
// noted in p.
func (e *Engine) releaseLocked(slot uint32, p *leftover) {
	r := e.recs.at(slot)
	hdr := e.tab.Header()
	leader := r.leader == slot
	if leader {
		for r.next != slot {
			e.releaseLocked(r.next, p)
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
	left := Released{Object: pid.Ref{Slot: slot, Gen: r.gen}, TID: r.tid, TGID: r.tgid, Status: unix.WaitStatus(r.status)}
	if r.flags&requested != 0 {
		left.Usage = e.who.At(slot).usage()
		if !leader {
			e.who.At(r.leader).add(&left.Usage)
		}
	}
	p.task(left)
	e.unhashLocked(slot, r, leader, p)
	e.tab.Set(&hdr.Tasks, hdr.Tasks-1)
	e.tab.Bump(&hdr.Changes, 1)
	if ns := e.pids.NamespaceOf(slot); leader && ns.Closed() {
		e.emptiedLocked(ns, p)
	}
}

// unhashLocked takes the task away from its number, and detaches it from every pid
// object that it used; those without any user are to be freed (M5.1). Its record
// loses the number and stays readable.
func (e *Engine) unhashLocked(slot uint32, r *record, leader bool, p *leftover) {
	r.tid = 0
	h := &e.scratch
	e.tab.Get(slot, h)
	h.TID, h.State = 0, stateDead
	e.tab.Put(slot, h)
	if !leader {
		if e.pids.Detach(slot, pid.PID) {
			p.pid(slot)
		}
		return
	}
	e.pids.Detach(slot, pid.TGID)
	if r.flags&requested != 0 {
		w := e.who.At(slot)
		e.leaveLocked(w.pgid(), pid.PGID, p)
		e.leaveLocked(w.sid(), pid.SID, p)
	}
	if e.pids.Detach(slot, pid.PID) {
		p.pid(slot)
	}
}

// leaveLocked detaches a process from the group or session with this number, 0 for
// none.
func (e *Engine) leaveLocked(nr uint32, role pid.Role, p *leftover) {
	if nr == 0 {
		return
	}
	if slot := e.ids.Find(nr); e.pids.Detach(slot, role) {
		p.pid(slot)
	}
}

// repairLocked releases a life that the kernel's word contradicts, at once and
// whole: its number is about to be another's.
func (e *Engine) repairLocked(slot uint32, nowNs uint64) {
	p := leftover{now: true}
	e.stats.Repaired.Add(1)
	e.vanishedLocked(slot, nowNs, &p)
	p.finish(e)
}

// vanishedLocked releases a life whose end was not told, with what follows from
// an end.
func (e *Engine) vanishedLocked(slot uint32, nowNs uint64, p *leftover) {
	leader := e.recs.at(slot).leader
	if slot == leader {
		if e.recs.at(slot).flags&ended == 0 {
			e.tab.Bump(&e.tab.Header().Deaths, 1)
		}
		e.doubtChildren(slot, nowNs)
		e.releaseLocked(slot, p)
		return
	}
	e.releaseLocked(slot, p)
	e.endIfLastLocked(leader, nowNs)
}

// endIfLastLocked ends a process of which only the exited leader is left.
func (e *Engine) endIfLastLocked(leader uint32, nowNs uint64) {
	if l := e.recs.at(leader); l.flags&(exited|ended) == exited && l.members == 1 {
		e.endedLocked(leader, nowNs)
		e.doubtChildren(leader, nowNs)
	}
}
