package pid

import (
	"fmt"
	"sync/atomic"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// Namespace is a PID namespace: numbers, and which task each leads to.
//
// Made by NewSpace and Space.NewNamespace; not to be copied. It is there while
// anything refers to it: an object of its level, a namespace below it, a Hold. What
// readers load is immutable, atomic, or a tree with rules of its own; the rest is
// guarded by the pid lock. See Space for invariants and ordering.
//
// Readers are lock-free. A walk goes on at the number that it found + 1, so a whole
// listing is linear in tagged numbers however many are stale (M1.7).
type Namespace struct {
	space  *Space
	parent *Namespace // immutable; nil for the root
	level  uint32     // immutable; 0 for the root
	handle uint32     // immutable, reused after the namespace

	root  *radix.Tree22     // immutable; the root's: number -> slot
	child *radix.Tree64Slab // immutable; any other's: number -> slot and generation

	reaper atomic.Uint32 // slot of its reaper's leader; stored under the task-list lock
	closed atomic.Bool   // gives no numbers any more; stored under the pid lock

	// Guarded by the pid lock.
	max     uint32 // numbers are below
	cursor  uint32 // where the next cyclic allocation begins
	numbers uint32 // that objects have
	refs    uint32

	searches   atomic.Uint64
	staleTags  atomic.Uint64
	tagged     atomic.Uint64
	violations atomic.Uint64
}

// Stats are the live figures of M1. Violations counts breaches of M1.6, which
// are bugs of the engine.
type Stats struct{ Tagged, StaleTags, Searches, Violations uint64 }

// NewNamespace makes a namespace below parent, with one reference (Hold). Its
// limit is Max, whatever the parent's is. ENOSPC: beyond 32 levels. EINVAL: parent is
// of another space, or nothing refers to it any more.
func (s *Space) NewNamespace(parent *Namespace) (*Namespace, error) {
	if parent.level == LevelsMax {
		return nil, fmt.Errorf("make pid namespace of level %d: %w", parent.level+1, unix.ENOSPC)
	}
	ns := &Namespace{space: s, parent: parent, level: parent.level + 1, child: radix.NewTree64Slab(), refs: 1}
	s.mu.lock()
	defer s.mu.unlock()
	if !s.knowsLocked(parent) {
		return nil, fmt.Errorf("make pid namespace: %w", unix.EINVAL)
	}
	ns.max = Max
	parent.refs++
	s.nameLocked(ns)
	return ns, nil
}

// nameLocked gives ns a handle.
func (s *Space) nameLocked(ns *Namespace) {
	if n := len(s.nameFree); n > 0 {
		ns.handle = s.nameFree[n-1]
		s.nameFree = s.nameFree[:n-1]
	} else {
		ns.handle = s.nameNext
		s.nameNext++
	}
	s.names.Reserve(ns.handle).Store(ns)
	s.namespace++
}

// knowsLocked tells whether ns is a namespace of s that something refers to.
func (s *Space) knowsLocked(ns *Namespace) bool {
	return ns.space == s && s.names.At(ns.handle).Load() == ns
}

// Hold takes a reference for the caller, who has one or knows of one.
func (ns *Namespace) Hold() {
	ns.space.mu.lock()
	defer ns.space.mu.unlock()
	if !ns.space.knowsLocked(ns) {
		panic(fmt.Sprintf("pid: I1: hold of namespace %d of level %d, which is gone", ns.handle, ns.level))
	}
	ns.refs++
}

// Drop gives a reference of NewNamespace or Hold back.
func (ns *Namespace) Drop() {
	ns.space.mu.lock()
	defer ns.space.mu.unlock()
	ns.space.dropLocked(ns)
}

// dropLocked gives a reference back, and what the namespace refers to with the
// last one.
func (s *Space) dropLocked(ns *Namespace) {
	for ; ns != nil; ns = ns.parent {
		if ns.refs == 0 && ns.parent != nil {
			panic(fmt.Sprintf("pid: I1: namespace %d of level %d is dropped more often than held", ns.handle, ns.level))
		}
		if ns.parent == nil {
			return // the root stays
		}
		if ns.refs--; ns.refs > 0 {
			return
		}
		s.names.At(ns.handle).Store(nil)
		s.nameFree = append(s.nameFree, ns.handle)
		s.namespace--
	}
}

// Level is how many namespaces are above it.
func (ns *Namespace) Level() uint32 { return ns.level }

// Parent is the namespace above it, nil for the root.
func (ns *Namespace) Parent() *Namespace { return ns.parent }

// at is the namespace of that level that ns is in or below, nil if level is deeper.
func (ns *Namespace) at(level uint32) *Namespace {
	for ns != nil && ns.level > level {
		ns = ns.parent
	}
	if ns != nil && ns.level < level {
		return nil
	}
	return ns
}

// In reports whether ns is other or below it.
func (ns *Namespace) In(other *Namespace) bool { return ns.at(other.level) == other }

// SetMax limits the numbers to those below max from now on; EINVAL outside of 301
// to Max. Numbers that are given stay.
func (ns *Namespace) SetMax(max uint32) error {
	if max <= Reserved || max > Max {
		return fmt.Errorf("set pid_max to %d: %w", max, unix.EINVAL)
	}
	ns.space.mu.lock()
	defer ns.space.mu.unlock()
	ns.max = max
	return nil
}

// SetLast has the next cyclic allocation begin behind nr, as ns_last_pid; EINVAL
// beyond the limit.
func (ns *Namespace) SetLast(nr uint32) error {
	ns.space.mu.lock()
	defer ns.space.mu.unlock()
	if nr > ns.max {
		return fmt.Errorf("set the last pid to %d of %d: %w", nr, ns.max, unix.EINVAL)
	}
	ns.cursor = nr + 1
	return nil
}

// Reaper is the slot of the process that inherits orphans, 0 if there is none.
func (ns *Namespace) Reaper() uint32 { return ns.reaper.Load() }

// SetReaper is for the holder of the task-list lock. The namespace's first process
// becomes its reaper; 0 when that has ended.
func (ns *Namespace) SetReaper(slot uint32) { ns.reaper.Store(slot) }

// Close ends allocation for good: the reaper dies. ENOMEM is what Alloc returns
// from now on.
func (ns *Namespace) Close() {
	ns.space.mu.lock()
	defer ns.space.mu.unlock()
	ns.closed.Store(true)
}

// Closed reports whether allocation has ended.
func (ns *Namespace) Closed() bool { return ns.closed.Load() }

// Find returns the slot of the pid object with number nr, 0 if there is none. The
// object may have no task.
func (ns *Namespace) Find(nr uint32) uint32 {
	if ns.root != nil {
		return ns.root.Lookup(nr)
	}
	return uint32(ns.child.Lookup(uint64(nr)))
}

// Ref returns the pid object of the task with number nr. Inside a section of the space's
// domain it stays what it is until the section's end.
func (ns *Namespace) Ref(nr uint32) (ref Ref, ok bool) {
	var h table.Hot
	if ns.root == nil {
		v := ns.child.Lookup(uint64(nr))
		return Ref{uint32(v), uint32(v >> 32)}, ns.readChild(v, &h)
	}
	slot := ns.root.Lookup(nr)
	ok = slot != 0 && ns.space.view.Read(slot, &h) && h.TID == nr
	return Ref{slot, h.Gen}, ok
}

// Read copies the record of the task with number nr into h, whose numbers are the
// root namespace's. ok is false if no task has nr.
func (ns *Namespace) Read(nr uint32, h *table.Hot) (ok bool) {
	if ns.root == nil {
		return ns.readChild(ns.child.Lookup(uint64(nr)), h)
	}
	slot := ns.root.Lookup(nr)
	return slot != 0 && ns.space.view.Read(slot, h) && h.TID == nr
}

// readChild copies the record that an entry of a child's tree names, if its task is
// there still.
func (ns *Namespace) readChild(v uint64, h *table.Hot) bool {
	return v != 0 && ns.space.view.Read(uint32(v), h) && h.Gen == uint32(v>>32) && h.TID != 0
}

func (ns *Namespace) hasTag(nr uint32) bool {
	if ns.root != nil {
		return ns.root.Tagged(nr, radix.Tree22TGID)
	}
	return ns.child.Tagged(uint64(nr), radix.Tree64SlabTGID)
}

// Verify compares the tag of nr with what the task's record says, counts a
// breach of M1.6, and reports whether all is well.
func (ns *Namespace) Verify(nr uint32, leader bool) bool {
	if leader && !ns.hasTag(nr) {
		ns.violations.Add(1)
		return false
	}
	return true
}

// Stats returns the counters of this moment.
func (ns *Namespace) Stats() Stats {
	return Stats{ns.tagged.Load(), ns.staleTags.Load(), ns.searches.Load(), ns.violations.Load()}
}

// Users is how many pid objects have a number in ns.
func (ns *Namespace) Users() uint32 {
	ns.space.mu.lock()
	defer ns.space.mu.unlock()
	ns.space.drainLocked()
	return ns.numbers
}
