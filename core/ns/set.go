package ns

import (
	"fmt"
	"sync/atomic"
)

// Set is the namespaces of a process. Processes that were cloned without a
// CLONE_NEW… flag share one.
//
//  1. Made by Clone, Unshare and Setns, or the registry's first; not to be
//     copied. The zero value is none.
//  2. I1: refs counts the tasks that have it; at 0 it is dead. I2: it has a
//     reference to each of its members.
//  3. Members are immutable, refs is atomic. A process changes its namespaces by
//     taking another set and giving up this one.
//  4. Whoever hands a set to another goroutine orders that.
//  5. No reader races: members never change.
//  6. Members live as long as the set.
//  7. At, Get: wait-free. The last Put buries what only the set kept alive.
//  8. Source: nsproxy of Linux, with the user and the active PID namespace in it.
type Set struct {
	ns              [Kinds]*Namespace
	pidForChildren  *Namespace
	timeForChildren *Namespace
	refs            atomic.Int64
}

// At is the process's namespace of a kind. It lives as long as the set does.
func (s *Set) At(k Kind) *Namespace { return s.ns[k] }

// ForChildren is the namespace of a kind that a child gets that is cloned without
// flags. It differs from At for PID and Time only, after Unshare or Setns.
func (s *Set) ForChildren(k Kind) *Namespace {
	switch k {
	case PID:
		return s.pidForChildren
	case Time:
		return s.timeForChildren
	}
	return s.ns[k]
}

// Get takes one more reference. The caller must have one.
func (s *Set) Get() *Set {
	if s.refs.Add(1) < 2 {
		panic("ns: I1: reference to a dead set")
	}
	return s
}

// Put gives up a reference. The last one buries the namespaces that nothing else
// keeps alive; then the caller must hold no lock that the registry's hooks take.
func (s *Set) Put() {
	switch refs := s.refs.Add(-1); {
	case refs == 0:
		s.release()
	case refs < 0:
		panic("ns: I1: reference to a set given up twice")
	}
}

// release gives up the members.
func (s *Set) release() {
	var g grave
	for _, n := range s.ns {
		g.put(n)
	}
	g.put(s.pidForChildren)
	g.put(s.timeForChildren)
	g.close()
}

// copySet returns a set with one reference and the same members.
func (s *Set) copySet() *Set {
	c := &Set{pidForChildren: s.pidForChildren.Get(), timeForChildren: s.timeForChildren.Get()}
	for k, n := range s.ns {
		c.ns[k] = n.Get()
	}
	c.refs.Store(1)
	return c
}

// replace puts n, with its reference, in the place of a member of a set that only
// the caller has.
func (s *Set) replace(member **Namespace, n *Namespace) {
	old := *member
	*member = n
	old.Put()
}

// String names the members as /proc/PID/ns does.
func (s *Set) String() string {
	return fmt.Sprintf("%v for children %v %v", s.ns, s.pidForChildren, s.timeForChildren)
}
