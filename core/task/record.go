package task

// record is the private half of a task; the published half is table.Hot in the
// same slot. It holds slots in place of pointers, so that the collector never
// looks at a million of them. All fields are guarded by Engine.mu.
type record struct {
	tid, tgid uint32 // tid 0: the slot is unused
	gen       uint32 // of the life in this slot, as published
	flags     recordFlags
	queue     queueID // the check queue that it waits in
	scan      uint32  // number of the last snapshot that held it

	leader     uint32 // slot of the group's leader; its own for a leader
	next, prev uint32 // ring of the group, leader included
	members    uint32 // leader: tasks in the ring

	parent           uint32 // leader: slot of the parent's leader, 0 if unknown
	child            uint32 // leader: first child
	sibNext, sibPrev uint32 // list of the parent's children, 0 at its ends

	qnext, qprev uint32

	seenNs   uint64 // CLOCK_MONOTONIC at which this life was known: its fork, or the look that a snapshot took at it
	queuedNs uint64 // when it entered its queue
}

type recordFlags uint16

const (
	exited   recordFlags = 1 << iota // has left do_exit
	ended                            // leader: the last task of the group has exited
	scanned                          // born from a snapshot, not from an event
	doubtful                         // has exited, by some evidence: the next check decides
	missed                           // a check did not find it: the next check decides
	execed                           // an exec took other threads with it; its leader's exit may yet be told
)

const chunkRecords = 512

// slab is a growing array of records, never moved.
type slab struct{ chunks []*[chunkRecords]record }

func (s *slab) at(slot uint32) *record {
	return &s.chunks[slot/chunkRecords][slot%chunkRecords]
}

// reserve makes slot usable.
func (s *slab) reserve(slot uint32) *record {
	for int(slot/chunkRecords) >= len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkRecords]record))
	}
	return s.at(slot)
}

func (s *slab) end() uint32 { return uint32(len(s.chunks) * chunkRecords) }

// joinGroup puts a thread into its leader's ring.
func (s *slab) joinGroup(slot, leader uint32) {
	r, l := s.at(slot), s.at(leader)
	r.leader = leader
	r.next, r.prev = leader, l.prev
	s.at(l.prev).next = slot
	l.prev = slot
	l.members++
}

func (s *slab) leaveGroup(slot uint32) {
	r := s.at(slot)
	s.at(r.prev).next, s.at(r.next).prev = r.next, r.prev
	s.at(r.leader).members--
}

// adopt makes parent the parent of leader slot; 0 leaves it without one.
func (s *slab) adopt(slot, parent uint32) {
	r := s.at(slot)
	if r.parent != 0 {
		if r.sibPrev != 0 {
			s.at(r.sibPrev).sibNext = r.sibNext
		} else {
			s.at(r.parent).child = r.sibNext
		}
		if r.sibNext != 0 {
			s.at(r.sibNext).sibPrev = r.sibPrev
		}
	}
	r.parent, r.sibPrev, r.sibNext = parent, 0, 0
	if parent == 0 {
		return
	}
	p := s.at(parent)
	r.sibNext = p.child
	if p.child != 0 {
		s.at(p.child).sibPrev = slot
	}
	p.child = slot
}
