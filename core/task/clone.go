package task

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// CloneArgs asks for a new task, as clone3 does. The exit signal is SIGCHLD.
type CloneArgs struct {
	Flags  uint64   // CLONE_…; those that concern neither tasks nor PID namespaces mean nothing here
	SetTID []uint32 // requested numbers, the new task's own namespace first
}

// ThreadFlags are what a thread is cloned with at least.
const ThreadFlags = unix.CLONE_VM | unix.CLONE_SIGHAND | unix.CLONE_THREAD

// caller is a task that asks for something, as a reader sees it.
type caller struct {
	pid.Ref
	table.Hot
	ns    *pid.Namespace
	euid  uint32
	uids  uint64
	gids  uint64
	kids  bool // the namespace of its children is another
	reaps bool // it is of the process that is its namespace's reaper
}

// callerOf looks at a task without the lock; false if it was not made by request.
func (e *Engine) callerOf(tid uint32, c *caller) bool {
	slot, w := e.look(tid, &c.Hot)
	if w == nil {
		return false
	}
	c.Ref = pid.Ref{Slot: slot, Gen: c.Hot.Gen}
	c.ns = e.pids.NamespaceOf(slot)
	c.uids, c.gids, c.kids = atomic.LoadUint64(&w.uids), atomic.LoadUint64(&w.gids), w.unshared()
	c.euid = uint32(c.uids >> 32)
	c.reaps = c.ns != nil && c.ns.Reaper() == e.ids.Find(c.TGID)
	return c.ns != nil
}

// callerLocked returns the slot of a task that is able to ask for something.
// ESRCH: no such task, or it has exited. EBUSY: it waits for its child of vfork.
func (e *Engine) callerLocked(tid uint32) (slot uint32, err error) {
	slot = e.findRequested(tid)
	switch {
	case slot == 0 || e.recs.at(slot).flags&(exited|zapping) != 0:
		return 0, unix.ESRCH
	case e.recs.at(slot).flags&suspended != 0:
		return 0, unix.EBUSY
	}
	return slot, nil
}

// findRequested is the slot of a task that was made by request, 0 if there is none.
func (e *Engine) findRequested(tid uint32) uint32 {
	slot := e.find(tid)
	if slot == 0 || e.recs.at(slot).flags&requested == 0 {
		return 0
	}
	return slot
}

// Start makes the first process of the root namespace: its reaper, with no parent,
// group or session, and user 0. EEXIST: there is one. Else the errors of Clone.
func (e *Engine) Start(comm [16]byte) (tid uint32, err error) {
	if e.ids.Reaper() != 0 {
		return 0, fmt.Errorf("start the first process: %w", unix.EEXIST)
	}
	c := caller{ns: e.ids}
	c.Comm = comm
	if tid, err = e.newTask(&c, e.ids, &CloneArgs{}); err != nil {
		return 0, fmt.Errorf("start the first process: %w", err)
	}
	return tid, nil
}

// Clone has task tid make a task: a process, or with CLONE_THREAD a thread of its
// group. It returns the number in the root namespace. With CLONE_VFORK the caller
// can ask for nothing (EBUSY) until the child has called exec or ended.
//
// EINVAL: flags that exclude each other, or of a reaper that asks for a sibling, or
// a requested number that is none. EPERM: not privileged. EEXIST: a requested
// number is taken. EAGAIN: no number is free. ENOMEM: the namespace's reaper is
// dead. ENOSPC: beyond 32 levels. ESRCH: no such caller, or it has exited.
// table.ErrFull: no room. After an error nothing has changed.
func (e *Engine) Clone(tid uint32, a *CloneArgs) (child uint32, err error) {
	var c caller
	if !e.callerOf(tid, &c) {
		return 0, fmt.Errorf("clone by task %d: %w", tid, unix.ESRCH)
	}
	ns := c.ns
	made := a.Flags&unix.CLONE_NEWPID != 0
	switch {
	case !c.mayClone(a.Flags):
		err = unix.EINVAL
	case made:
		ns, err = e.newNamespace(&c)
	case c.kids:
		ns, err = e.childNamespace(&c)
		made = true // with a reference of ours
	}
	if err == nil {
		child, err = e.newTask(&c, ns, a)
		if made {
			ns.Drop()
		}
	}
	if err != nil {
		return 0, fmt.Errorf("clone by task %d: %w", tid, err)
	}
	return child, nil
}

// mayClone tells whether the flags go together.
func (c *caller) mayClone(flags uint64) bool {
	has := func(all uint64) bool { return flags&all == all }
	switch {
	case has(unix.CLONE_NEWNS | unix.CLONE_FS), has(unix.CLONE_NEWUSER | unix.CLONE_FS):
	case has(unix.CLONE_THREAD) && !has(unix.CLONE_SIGHAND), has(unix.CLONE_SIGHAND) && !has(unix.CLONE_VM):
	case has(unix.CLONE_PARENT) && c.reaps:
	case has(unix.CLONE_THREAD) && (flags&(unix.CLONE_NEWUSER|unix.CLONE_NEWPID) != 0 || c.kids):
	default:
		return true
	}
	return false
}

// newNamespace makes a namespace below the caller's, for CLONE_NEWPID.
func (e *Engine) newNamespace(c *caller) (*pid.Namespace, error) {
	switch {
	case c.euid != 0:
		return nil, unix.EPERM
	case c.kids:
		return nil, unix.EINVAL
	}
	return e.pids.NewNamespace(c.ns)
}

// childNamespace is the namespace of the children of a caller that has left its
// own, with a reference.
func (e *Engine) childNamespace(c *caller) (*pid.Namespace, error) {
	e.lock()
	defer e.unlock()
	ns := e.unshared[c.Slot]
	if r := e.recs.at(c.Slot); ns == nil || r.gen != c.Ref.Gen {
		return nil, unix.ESRCH
	}
	ns.Hold()
	return ns, nil
}

// newTask allocates a pid object, outside the task-list lock, and attaches a task.
func (e *Engine) newTask(c *caller, ns *pid.Namespace, a *CloneArgs) (tid uint32, err error) {
	process := a.Flags&unix.CLONE_THREAD == 0
	startNs := e.bootNow()
	ref, err := e.pids.Alloc(ns, &pid.Request{Numbers: a.SetTID, Allowed: c.euid == 0, Leader: process})
	if err != nil {
		return 0, err
	}
	h := table.Hot{
		TID: e.pids.Number(ref.Slot, e.ids), StartNs: startNs, StartTicks: e.bootTicks(startNs), Comm: c.Comm,
	}
	if err := e.attach(c, ref, ns, &h, a.Flags); err != nil {
		e.pids.Free([]uint32{ref.Slot})
		return 0, err
	}
	return h.TID, nil
}

// attach begins the life of a task on a pid object.
func (e *Engine) attach(c *caller, ref pid.Ref, ns *pid.Namespace, h *table.Hot, flags uint64) error {
	e.lock()
	defer e.unlock()
	leader, parent := uint32(0), uint32(0)
	if c.Ref != (pid.Ref{}) {
		slot, err := e.callerLocked(c.TID)
		if err != nil || e.recs.at(slot).gen != c.Ref.Gen {
			return cmp.Or(err, error(unix.ESRCH))
		}
		leader = e.recs.at(slot).leader
	}
	if ns.Closed() {
		return unix.ENOMEM
	}
	process := flags&unix.CLONE_THREAD == 0
	if process {
		if parent = leader; flags&unix.CLONE_PARENT != 0 {
			parent = e.recs.at(leader).parent
		}
		h.TGID = h.TID
		if parent != 0 {
			h.PPID, h.PPIDAtFork = e.recs.at(parent).tid, c.TGID
		}
	} else {
		h.TGID = c.TGID
	}
	e.identify(ref.Slot, c, leader, process)
	e.storeLocked(ref, h, e.inheritedLocked(leader, process), 0)
	if process {
		e.joinParentLocked(ref.Slot, parent)
		e.joinGroupsLocked(ref.Slot, ns)
	} else {
		e.joinThreadsLocked(ref.Slot, leader)
	}
	if flags&unix.CLONE_VFORK != 0 {
		e.recs.at(c.Slot).flags |= suspended
		e.vforks[ref.Slot] = c.Ref
	}
	return nil
}

// inheritedLocked are the flags that a new task begins with: how its process treats
// children, a child process has from its parent.
func (e *Engine) inheritedLocked(leader uint32, process bool) recordFlags {
	if !process || leader == 0 {
		return requested
	}
	return requested | e.recs.at(leader).flags&(ignores|noWait)
}

// identify gives a new task the group, session and credentials that it inherits,
// before its record can be read (F).
func (e *Engine) identify(slot uint32, c *caller, leader uint32, process bool) {
	w := e.who.Reserve(slot)
	ids := uint64(0)
	if process && leader != 0 {
		ids = atomic.LoadUint64(&e.who.At(leader).ids) &^ unsharedBit
	}
	arch.StoreRelease64(&w.ids, ids)
	arch.StoreRelease64(&w.uids, c.uids)
	arch.StoreRelease64(&w.gids, c.gids)
	w.setUsage(Usage{})
}

// joinGroupsLocked makes a process a user of its group and session, and the first
// of a namespace its reaper.
func (e *Engine) joinGroupsLocked(slot uint32, ns *pid.Namespace) {
	w := e.who.At(slot)
	if pgid := w.pgid(); pgid != 0 {
		e.pids.Attach(e.ids.Find(pgid), pid.PGID)
	}
	if sid := w.sid(); sid != 0 {
		e.pids.Attach(e.ids.Find(sid), pid.SID)
	}
	if ns.Reaper() == 0 && e.pids.Number(slot, ns) == 1 {
		ns.SetReaper(slot)
	}
}

// Unshare has the later children of task tid live in a PID namespace of their own,
// as unshare(CLONE_NEWPID). EPERM: not privileged. EINVAL: it has done so before.
// ENOSPC: beyond 32 levels. ESRCH: no such task, or it has exited.
func (e *Engine) Unshare(tid uint32) (*pid.Namespace, error) {
	var c caller
	if !e.callerOf(tid, &c) {
		return nil, fmt.Errorf("unshare the pid namespace of task %d: %w", tid, unix.ESRCH)
	}
	ns, err := e.newNamespace(&c)
	if err == nil {
		if err = e.moveChildren(&c, ns); err != nil {
			ns.Drop()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("unshare the pid namespace of task %d: %w", tid, err)
	}
	return ns, nil
}

// SetNS has the later children of task tid live in ns, which is its own namespace or
// one below (else EINVAL), as setns. EPERM and ESRCH as Unshare.
func (e *Engine) SetNS(tid uint32, ns *pid.Namespace) error {
	var c caller
	err := error(unix.ESRCH)
	if e.callerOf(tid, &c) {
		switch {
		case c.euid != 0:
			err = unix.EPERM
		case !ns.In(c.ns):
			err = unix.EINVAL
		default:
			ns.Hold()
			if err = e.moveChildren(&c, ns); err != nil {
				ns.Drop()
			}
		}
	}
	if err != nil {
		return fmt.Errorf("set the pid namespace of task %d: %w", tid, err)
	}
	return nil
}

// moveChildren takes over the caller's reference on ns.
func (e *Engine) moveChildren(c *caller, ns *pid.Namespace) error {
	e.lock()
	defer e.unlock()
	slot, err := e.callerLocked(c.TID)
	if err != nil || e.recs.at(slot).gen != c.Ref.Gen {
		return cmp.Or(err, error(unix.ESRCH))
	}
	e.rejoinLocked(slot)
	if ns == c.ns {
		ns.Drop()
		return nil
	}
	e.unshared[slot] = ns
	e.who.At(slot).setUnshared(true)
	return nil
}

// rejoinLocked lets the children of a task live in its own namespace.
func (e *Engine) rejoinLocked(slot uint32) {
	if w := e.who.At(slot); w.unshared() {
		e.unshared[slot].Drop()
		delete(e.unshared, slot)
		w.setUnshared(false)
	}
}

// bootNow is CLOCK_BOOTTIME, as far as the machine was not suspended since New.
// Reading that clock takes a system call.
func (e *Engine) bootNow() uint64 { return e.bootNs + uint64(time.Since(e.made)) }
