package pid

import (
	"context"
	"sync/atomic"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/epoch"
	"github.com/kpidd/kpidd/generated/radix"
)

// Limits of pid numbers and namespaces, as Linux has them.
const (
	Max       = radix.Tree22Keys // one more than the largest number
	Reserved  = 300              // numbers below are not given again after the first round
	LevelsMax = 32               // namespaces below the root
)

// Ref names a pid object: its slot, and the generation that tells it from all that
// had the slot before and will have it later. The zero Ref names none.
type Ref struct{ Slot, Gen uint32 }

// Space holds the pid objects of one engine: all slots, all namespaces.
//
//  1. Made by NewSpace over a table; not to be copied.
//  2. I1: a slot is free, or taken (NewSlot), or a pid object with a number in each
//     level from its namespace to the root (Alloc, Insert), or one that is retired
//     and waits for the next holder of the pid lock (Retire), or that is freed and
//     waits for readers (Free). I2 (M1.4): the numbers of an object are visible on
//     all levels or on none once a call has returned. I3 (M5.3): an object is freed
//     once, when its last user of any role has gone; a number is free again when its
//     object is reclaimed. I4: PID and TGID have at most one user, and TGID only
//     beside PID. I5 (M1.5, M1.6): a number bears TGID in each level exactly if its
//     object was made for a group leader.
//  3. mu, the pid lock, guards slots, numbers and namespaces; users of roles are
//     guarded by the caller's task-list lock, which is taken before mu (lock.go).
//     retiredHead is atomic. Readers of numbers take no lock; the fields of object
//     that they load are atomic.
//  4. A: a chunk of the slab before any slot in it (slab.go). C: an object is
//     complete before its first number is visible; readers load the number first.
//     E: tag TGID after the number. C and E are the trees'. R: what the last user
//     did comes before its object is on the list of the retired; who empties the
//     list sees it.
//  5. A reader that races with Alloc finds a number whose record is empty, or whose
//     other numbers are not there yet. One that races with Free finds a record
//     without a number. It tells lives apart by the generation.
//  6. Free keeps slot and numbers from reuse until all sections of Domain that had
//     begun are over (M5.6). FreeNow does not: it is for numbers that the kernel
//     reuses at once, whose readers check the number inside the record's read.
//  7. Writers block each other for one call. Readers are wait-free but for the
//     record's bounded retries.
//  8. Source: MECHANISMS.md M1, M5; alloc_pid and free_pid of Linux.
type Space struct {
	view *table.View
	root *Namespace

	domain  *epoch.Domain
	objects *Slab[object]
	deep    *Slab[deepNumbers]
	names   *Slab[atomic.Pointer[Namespace]] // by handle

	retiredHead atomic.Uint64 // slot of the object retired last, and above it how many are
	_           arch.Pad

	mu        lock
	tab       *table.Writer
	gen       uint32
	readers   *epoch.Writer32 // what waits for readers; nil until something was freed
	pending   []uint32        // what readers had no room for
	deepNext  uint32
	deepFree  []uint32
	nameNext  uint32
	nameFree  []uint32
	rootIDs   *idMap // nil until the engine chooses a root number
	namespace uint32 // namespaces that are there
}

// NewSpace makes a space with a root namespace over w, whose slots and tree it owns
// from now on.
func NewSpace(w *table.Writer) *Space {
	s := &Space{
		view: &w.View, tab: w, domain: epoch.NewDomain(),
		objects: NewSlab[object](), deep: NewSlab[deepNumbers](),
		names: NewSlab[atomic.Pointer[Namespace]](), nameNext: 1, deepNext: 1,
	}
	s.root = &Namespace{space: s, root: w.Tree(), max: Max}
	s.nameLocked(s.root)
	return s
}

// Root is the root PID namespace.
func (s *Space) Root() *Namespace { return s.root }

// Domain is where readers register: what they find in a section of theirs is not
// reused before its end.
func (s *Space) Domain() *epoch.Domain { return s.domain }

// Namespaces is the number of namespaces that are there, the root included.
func (s *Space) Namespaces() int {
	s.mu.lock()
	defer s.mu.unlock()
	s.drainLocked()
	return int(s.namespace)
}

// AssertOutside panics, in builds with invariants, if the calling goroutine holds
// the pid lock: it is about to take a lock that comes before it.
func (s *Space) AssertOutside() { s.mu.assertOutside() }

// object is the private half of a pid object.
type object struct {
	outer uint64 // atomic: number in the root namespace, and above it that of level 1
	inner uint64 // atomic: handle of the namespace, and above it the index in deep; 0: no object

	// Atomic, stored under the task-list lock: users by role, see role.go. Of an
	// object that is retired: retiredBit, and the slot of the one retired before.
	users uint64
}

const (
	withdrawn = 1 << 63 // in inner: freed, waits for readers
	deepShift = 32
	deepMask  = 1<<31 - 1
)

// deepNumbers are the numbers of an object of level 2 or deeper, from level 2 on.
// Atomic.
type deepNumbers [LevelsMax - 1]uint32

func (o *object) handle() uint32 { return uint32(atomic.LoadUint64(&o.inner)) }

func (o *object) freed() bool { return atomic.LoadUint64(&o.inner)&withdrawn != 0 }

func (o *object) deepIndex() uint32 {
	return uint32(atomic.LoadUint64(&o.inner)>>deepShift) & deepMask
}

// numberAt is the object's number in a level that it has.
func (s *Space) numberAt(o *object, level uint32) uint32 {
	switch outer := atomic.LoadUint64(&o.outer); level {
	case 0:
		return uint32(outer)
	case 1:
		return uint32(outer >> 32)
	}
	return atomic.LoadUint32(&s.deep.At(o.deepIndex())[level-2])
}

// fillLocked makes an object of slot with its numbers, by level.
func (s *Space) fillLocked(slot uint32, ns *Namespace, numbers *[LevelsMax + 1]uint32) {
	o := s.objects.At(slot)
	deep := uint32(0)
	if ns.level > 1 {
		deep = s.newDeepLocked()
		d := s.deep.At(deep)
		for l := uint32(2); l <= ns.level; l++ {
			atomic.StoreUint32(&d[l-2], numbers[l])
		}
	}
	outer := uint64(numbers[0])
	if ns.level > 0 {
		outer |= uint64(numbers[1]) << 32
	}
	arch.StoreRelease64(&o.outer, outer)
	arch.StoreRelease64(&o.inner, uint64(ns.handle)|uint64(deep)<<deepShift)
}

func (s *Space) newDeepLocked() (index uint32) {
	if n := len(s.deepFree); n > 0 {
		index = s.deepFree[n-1]
		s.deepFree = s.deepFree[:n-1]
		return index
	}
	index = s.deepNext
	s.deepNext++
	s.deep.Reserve(index)
	return index
}

// Number is the number of the object in slot as ns shows it, 0 if it does not.
func (s *Space) Number(slot uint32, ns *Namespace) uint32 {
	o := s.objects.At(slot)
	own := s.namespaceOf(o)
	if own == nil || own.at(ns.level) != ns {
		return 0
	}
	return s.numberAt(o, ns.level)
}

// Numbers appends the numbers of the object in slot to dst, that of ns first and
// its own namespace's last, as NSpid of /proc/PID/status shows them to ns. None if
// ns does not show it.
func (s *Space) Numbers(slot uint32, ns *Namespace, dst []uint32) []uint32 {
	o := s.objects.At(slot)
	own := s.namespaceOf(o)
	if own == nil || own.at(ns.level) != ns {
		return dst
	}
	for l := ns.level; l <= own.level; l++ {
		dst = append(dst, s.numberAt(o, l))
	}
	return dst
}

// NamespaceOf is the namespace of the object in slot, nil if there is none.
func (s *Space) NamespaceOf(slot uint32) *Namespace { return s.namespaceOf(s.objects.At(slot)) }

func (s *Space) namespaceOf(o *object) *Namespace {
	if h := o.handle(); h != 0 {
		return s.names.At(h).Load()
	}
	return nil
}

// Settle returns when everything that was freed or retired before the call is reclaimed, or
// when ctx ends before; the error names the reader that is in the way.
func (s *Space) Settle(ctx context.Context) error {
	s.mu.lock()
	defer s.mu.unlock()
	s.drainLocked()
	if s.readers == nil {
		return nil
	}
	for {
		if err := s.readers.Barrier(ctx); err != nil {
			return err
		}
		if len(s.pending) == 0 {
			return nil
		}
		s.deferLocked()
	}
}
