package pid

import (
	"errors"
	"fmt"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// Request says which numbers a new pid object is to have.
type Request struct {
	Numbers []uint32 // requested, the object's own namespace first, as set_tid of clone3
	Allowed bool     // the caller may request numbers, in every level
	Leader  bool     // made for the leader of a thread group: bears TGID (M1.5)
}

// Alloc makes a pid object in ns: a slot, and a number in each level, in one pass
// under the pid lock. All numbers are reserved first, then made visible (M1.4). The
// record in the slot is empty: a task that is attached to the object stores it.
//
// EINVAL: no namespace of this space, more numbers requested than there are levels, one that is none, or one
// other than 1 where no reaper was yet. EPERM: not Allowed. EEXIST: a requested
// number is taken. EAGAIN: no number is free; those that readers keep for longer
// than 10 ms are not.
// ENOMEM: the namespace's reaper is dead. table.ErrFull: the table has no room.
// After an error nothing has changed.
func (s *Space) Alloc(ns *Namespace, r *Request) (Ref, error) {
	if len(r.Numbers) > int(ns.level)+1 {
		return Ref{}, fmt.Errorf("allocate %d numbers in level %d: %w", len(r.Numbers), ns.level, unix.EINVAL)
	}
	s.mu.lock()
	defer s.mu.unlock()
	s.drainLocked()
	if !s.knowsLocked(ns) {
		return Ref{}, fmt.Errorf("allocate pid in a namespace that is not there: %w", unix.EINVAL)
	}
	var numbers [LevelsMax + 1]uint32
	ref, err := s.newSlotLocked()
	if err != nil {
		return Ref{}, err
	}
	l := ns
	for ; l != nil; l = l.parent {
		want := uint32(0)
		depth := ns.level - l.level
		requested := depth < uint32(len(r.Numbers))
		if requested {
			want = r.Numbers[depth]
		}
		if numbers[l.level], err = s.reserveLocked(l, requested, want, r.Allowed); err != nil {
			break
		}
	}
	if err == nil && ns.closed.Load() {
		err = fmt.Errorf("allocate pid in level %d: %w", ns.level, unix.ENOMEM)
	}
	if err == nil {
		s.fillLocked(ref.Slot, ns, &numbers)
		err = s.publishLocked(ref, ns, &numbers, r.Leader)
	}
	if err != nil {
		s.undoLocked(ref.Slot, ns, l, &numbers)
		return Ref{}, err
	}
	ns.refs++
	return ref, nil
}

// undoLocked gives back what was reserved in the levels from ns up to, but not in,
// failed, and the slot.
func (s *Space) undoLocked(slot uint32, ns, failed *Namespace, numbers *[LevelsMax + 1]uint32) {
	for l := ns; l != failed; l = l.parent {
		l.cancel(numbers[l.level])
		if l.numbers--; l.numbers == 0 && l.reaper.Load() == 0 {
			l.cursor = 0 // the first process has number 1
		}
	}
	s.emptyLocked(slot)
	s.tab.FreeSlot(slot)
}

// reserveLocked takes a number in ns, with no entry that readers could see.
func (s *Space) reserveLocked(ns *Namespace, requested bool, want uint32, allowed bool) (nr uint32, err error) {
	if requested {
		switch {
		case want < 1 || want >= ns.max, want != 1 && ns.reaper.Load() == 0 && !ns.closed.Load():
			err = unix.EINVAL
		case !allowed:
			err = unix.EPERM
		case !s.reserveAtLocked(ns, want):
			err = unix.EEXIST
		}
		if err != nil {
			return 0, fmt.Errorf("allocate pid %d in level %d: %w", want, ns.level, err)
		}
		ns.numbers++
		return want, nil
	}
	min := uint32(1)
	if ns.cursor > Reserved {
		min = Reserved
	}
	from := max(min, ns.cursor)
	nr, ok := ns.reserveFrom(from, min)
	if !ok && s.reclaimLocked() {
		nr, ok = ns.reserveFrom(from, min)
	}
	if !ok {
		return 0, fmt.Errorf("allocate pid in level %d: all %d are taken: %w", ns.level, ns.numbers, unix.EAGAIN)
	}
	ns.cursor = nr + 1
	ns.numbers++
	return nr, nil
}

// reserveAtLocked takes one number, if it is free or is let go by
// readers in time.
func (s *Space) reserveAtLocked(ns *Namespace, nr uint32) bool {
	return ns.reserveAt(nr) || ns.Find(nr) == 0 && s.reclaimLocked() && ns.reserveAt(nr)
}

// reserveFrom takes the lowest free number >= from, or else that from min on.
func (ns *Namespace) reserveFrom(from, min uint32) (nr uint32, ok bool) {
	if nr, ok = ns.reserveRange(from); !ok && from > min {
		nr, ok = ns.reserveRange(min)
	}
	return nr, ok
}

func (ns *Namespace) reserveRange(from uint32) (nr uint32, ok bool) {
	if from >= ns.max {
		return 0, false
	}
	if ns.root == nil {
		id, err := ns.child.Reserve(uint64(from), uint64(ns.max-1))
		return uint32(id), err == nil
	}
	ids := ns.space.idsLocked()
	if nr, ok = ids.next(from); !ok || nr >= ns.max {
		return 0, false
	}
	return nr, ids.take(nr)
}

func (ns *Namespace) reserveAt(nr uint32) bool {
	if ns.root == nil {
		return ns.child.ReserveAt(uint64(nr)) == nil
	}
	return ns.space.idsLocked().take(nr)
}

// cancel frees a number that has no entry.
func (ns *Namespace) cancel(nr uint32) {
	if ns.root == nil {
		ns.child.Cancel(uint64(nr))
	} else if ids := ns.space.rootIDs; ids != nil {
		ids.give(nr)
	}
}

// idsLocked is the map of free root numbers.
func (s *Space) idsLocked() *idMap {
	if s.rootIDs == nil {
		s.makeIDsLocked()
	}
	return s.rootIDs
}

//go:noinline
func (s *Space) makeIDsLocked() {
	s.rootIDs = newIDMap()
	var buf [256]radix.Tree22Entry
	for from, more := uint32(0), true; more; {
		var n int
		n, from, more = s.root.root.GangAll(from, buf[:])
		for _, e := range buf[:n] {
			s.rootIDs.take(e.Key)
		}
	}
}

// publishLocked makes the numbers visible on all levels, the outermost, which
// alone can fail, first. The tag comes after the entry (M1.5).
func (s *Space) publishLocked(ref Ref, ns *Namespace, numbers *[LevelsMax + 1]uint32, leader bool) error {
	if err := s.root.root.InsertNew(numbers[0], ref.Slot); err != nil { // C
		return fmt.Errorf("allocate pid %d: %w", numbers[0], err)
	}
	if leader {
		s.root.tag(numbers[0])
	}
	for l := ns; l.level > 0; l = l.parent {
		l.child.Publish(uint64(numbers[l.level]), uint64(ref.Gen)<<32|uint64(ref.Slot)) // C
		if leader {
			l.tag(numbers[l.level])
		}
	}
	return nil
}

func (ns *Namespace) tag(nr uint32) {
	if ns.root != nil {
		ns.root.SetTag(nr, radix.Tree22TGID) // E
	} else {
		ns.child.SetTag(uint64(nr), radix.Tree64SlabTGID) // E
	}
	ns.tagged.Add(1)
}

// NewSlot takes a slot without a number, for Insert or PutBack. table.ErrFull: no
// room.
func (s *Space) NewSlot() (Ref, error) {
	s.mu.lock()
	defer s.mu.unlock()
	s.drainLocked()
	return s.newSlotLocked()
}

func (s *Space) newSlotLocked() (Ref, error) {
	slot, err := s.tab.NewSlot()
	if errors.Is(err, table.ErrFull) && s.reclaimLocked() {
		slot, err = s.tab.NewSlot()
	}
	if err != nil {
		return Ref{}, err
	}
	s.objects.Reserve(slot)
	if s.gen++; s.gen == 0 {
		s.gen = 1
	}
	return Ref{slot, s.gen}, nil
}

// Insert gives root number nr, which the kernel chose, to the object in a slot of
// NewSlot, whose record the caller has stored. EINVAL: no pid number. EEXIST:
// taken. Else the table's error when the tree needs memory. After an error the
// slot is the caller's still.
func (s *Space) Insert(ref Ref, nr uint32, leader bool) error {
	s.mu.lock()
	defer s.mu.unlock()
	s.drainLocked()
	switch {
	case nr == 0 || nr >= Max:
		return fmt.Errorf("insert pid %d: %w", nr, unix.EINVAL)
	case s.root.root.Lookup(nr) != 0:
		return fmt.Errorf("insert pid %d: %w", nr, unix.EEXIST)
	case s.rootIDs != nil && !s.reserveAtLocked(s.root, nr):
		return fmt.Errorf("insert pid %d: %w", nr, unix.EEXIST)
	}
	var numbers [LevelsMax + 1]uint32
	numbers[0] = nr
	s.fillLocked(ref.Slot, s.root, &numbers)
	if err := s.publishLocked(ref, s.root, &numbers, leader); err != nil {
		s.root.cancel(nr)
		s.emptyLocked(ref.Slot)
		return err
	}
	s.root.numbers++
	s.root.refs++
	return nil
}

// PutBack gives back a slot of NewSlot that got no number.
func (s *Space) PutBack(ref Ref) {
	s.mu.lock()
	defer s.mu.unlock()
	s.tab.FreeSlot(ref.Slot)
}
