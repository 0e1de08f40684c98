package task

import "github.com/kpidd/kpidd/core/pid"

// record is the private half of a task; the published half is table.Hot in the
// same slot. It holds slots in place of pointers, so that the collector never
// looks at a million of them. All fields are guarded by Engine.mu.
type record struct {
	tid, tgid uint32 // tid 0: no task is in the slot
	gen       uint32 // of the life in this slot, as published
	flags     recordFlags
	status    uint16 // as wait tells it: of the task, or of the group if that was ended as one

	leader     uint32 // slot of the group's leader; its own for a leader
	next, prev uint32 // ring of the group, leader included
	members    uint32 // leader: tasks in the ring

	parent           uint32 // leader: slot of the parent's leader, 0 if unknown
	child, lastChild uint32 // leader: its children, the oldest first
	sibNext, sibPrev uint32 // list of the parent's children, 0 at its ends

	scan         uint32 // number of the last snapshot that held it
	qnext, qprev uint32
	queue        queueID // the check queue that it waits in

	seenNs   uint64 // CLOCK_MONOTONIC at which this life was known: its fork, or the look that a snapshot took at it
	queuedNs uint64 // when it entered its queue
}

type recordFlags uint16

const (
	exited    recordFlags = 1 << iota // has left do_exit
	ended                             // leader: the last task of the group has exited
	scanned                           // born from a snapshot, not from an event
	doubtful                          // has exited, by some evidence: the next check decides
	missed                            // a check did not find it: the next check decides
	execed                            // an exec took other threads with it; its leader's exit may yet be told
	requested                         // made by request: has an identity
	newImage                          // leader, made by request: has called exec
	subreaper                         // leader: orphans below it are its children
	ignores                           // leader: SIGCHLD is ignored
	noWait                            // leader: has set SA_NOCLDWAIT
	leads                             // leader: of its session
	suspended                         // waits for its child of vfork
	zapping                           // reaper, and its last task: has exited, but for those that its namespace still has
)

// slab is a growing array of records, never moved.
type slab struct{ *pid.Slab[record] }

func (s slab) at(slot uint32) *record { return s.At(slot) }

// reserve makes slot usable.
func (s slab) reserve(slot uint32) *record { return s.Reserve(slot) }

func (s slab) end() uint32 { return s.End() }

// joinGroup puts a thread into its leader's ring.
func (s slab) joinGroup(slot, leader uint32) {
	r, l := s.at(slot), s.at(leader)
	r.leader = leader
	r.next, r.prev = leader, l.prev
	s.at(l.prev).next = slot
	l.prev = slot
	l.members++
}

func (s slab) leaveGroup(slot uint32) {
	r := s.at(slot)
	s.at(r.prev).next, s.at(r.next).prev = r.next, r.prev
	s.at(r.leader).members--
}

// adopt makes parent the parent of leader slot, and slot its youngest child; 0
// leaves it without one.
func (s slab) adopt(slot, parent uint32) {
	r := s.at(slot)
	if r.parent != 0 {
		s.disown(r)
	}
	r.parent, r.sibPrev, r.sibNext = parent, 0, 0
	if parent == 0 {
		return
	}
	p := s.at(parent)
	if r.sibPrev = p.lastChild; r.sibPrev != 0 {
		s.at(r.sibPrev).sibNext = slot
	} else {
		p.child = slot
	}
	p.lastChild = slot
}

// disown takes a process out of its parent's list.
func (s slab) disown(r *record) {
	p := s.at(r.parent)
	if r.sibPrev != 0 {
		s.at(r.sibPrev).sibNext = r.sibNext
	} else {
		p.child = r.sibNext
	}
	if r.sibNext != 0 {
		s.at(r.sibNext).sibPrev = r.sibPrev
	} else {
		p.lastChild = r.sibPrev
	}
}
