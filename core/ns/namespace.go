package ns

import (
	"fmt"
	"sync/atomic"
)

// Namespace is a namespace of any kind.
//
//  1. Made by a Registry; not to be copied. The zero value is none.
//  2. I1: refs counts what keeps it alive: a member of each Set that has it, each
//     File and mount that pins it, the PID namespaces below it, and for a user
//     namespace all namespaces and superblocks that it owns. A namespace whose
//     refs is 0 never rises again. I2: it is in the registry's tree, at its own
//     number, from the end of its making to its burial, and at no other time. I3:
//     level is its parent's + 1; the initial namespaces have 0. I4: supers is the
//     chain of the superblocks whose key is this namespace, at most one a
//     file-system type (M2), and empty once it is buried.
//  3. Fields are immutable from the end of the making on, but: refs and counts are
//     atomic, supers is written under Registry.superMu, the mount list has a lock.
//  4. A: all fields are stored before the tree shows the namespace; readers load
//     from the tree first.
//  5. A reader of the tree may get a namespace that is dying; TryGet tells.
//  6. The collector keeps the memory. The inode number is free for others as soon
//     as the namespace is buried; ID is never used again.
//  7. Get, TryGet and Put are lock-free; the last Put buries, and may block on
//     Registry.superMu.
//  8. Source: ns_common of Linux; MECHANISMS.md M2.
type Namespace struct {
	reg    *Registry
	owner  *Namespace // the user namespace that owns it; a user namespace's parent; nil: the first
	parent *Namespace // PID: the namespace above; nil: the first
	id     uint64
	inum   uint32
	level  uint32 // PID, User
	uid    uint32 // User: the effective user id of its maker
	handle uint32 // PID: what Hooks.MakePID returned
	kind   Kind

	refs   atomic.Int64
	counts *counts                    // User: the namespaces below it
	mounts *mounts                    // Mount
	super  *Superblock                // IPC: mounted at birth, and until death
	supers atomic.Pointer[Superblock] // written under Registry.superMu

	nextDead *Namespace // while it is being buried
}

// Kind is the kind of the namespace.
func (n *Namespace) Kind() Kind { return n.kind }

// Inum is its inode number, which a later namespace of any kind may get.
func (n *Namespace) Inum() uint32 { return n.inum }

// ID is a number that no other namespace of the registry ever gets; later ones
// get larger ones.
func (n *Namespace) ID() uint64 { return n.id }

// Level is the depth of a PID or user namespace below the first, 0 for all others.
func (n *Namespace) Level() uint32 { return n.level }

// Owner is the user namespace that owns it, for a user namespace its parent, nil
// for the first.
func (n *Namespace) Owner() *Namespace { return n.owner }

// Parent is the PID namespace above a PID namespace, else nil.
func (n *Namespace) Parent() *Namespace { return n.parent }

// Handle is what Hooks.MakePID returned for a PID namespace.
func (n *Namespace) Handle() uint32 { return n.handle }

// Get takes one more reference. The caller must have one.
func (n *Namespace) Get() *Namespace {
	if n.refs.Add(1) < 2 {
		panic(fmt.Sprintf("ns: I1: reference to dead namespace %v", n))
	}
	return n
}

// TryGet takes a reference unless the namespace is dead.
func (n *Namespace) TryGet() bool {
	for {
		refs := n.refs.Load()
		if refs <= 0 {
			return false
		}
		if n.refs.CompareAndSwap(refs, refs+1) {
			return true
		}
	}
}

// Put gives up a reference. The last one buries the namespace, and what only it
// kept alive; then the caller must hold no lock that is taken in here.
func (n *Namespace) Put() {
	var g grave
	g.put(n)
	g.close()
}

// String is kind and inode number as /proc/PID/ns shows them.
func (n *Namespace) String() string { return fmt.Sprintf("%v:[%d]", n.kind, n.inum) }

// below tells whether n is top, or a PID namespace somewhere below it.
func (n *Namespace) below(top *Namespace) bool {
	for n.level > top.level {
		n = n.parent
	}
	return n == top
}

// within tells whether user namespace n is top or lies somewhere below it.
func (n *Namespace) within(top *Namespace) bool {
	for n.level > top.level {
		n = n.owner
	}
	return n == top
}

// grave collects namespaces that have lost their last reference and buries them
// one after the other: each may be the last that kept others alive, and chains of
// them can be long. The zero value is empty; it belongs to one goroutine.
type grave struct{ dead *Namespace }

// put gives up a reference; what dies of it is buried by close.
func (g *grave) put(n *Namespace) {
	switch refs := n.refs.Add(-1); {
	case refs == 0:
		n.nextDead, g.dead = g.dead, n
	case refs < 0:
		panic(fmt.Sprintf("ns: I1: reference to %v given up twice", n))
	}
}

// close buries all. The caller holds no lock.
func (g *grave) close() {
	for g.dead != nil {
		n := g.dead
		g.dead, n.nextDead = n.nextDead, nil
		n.reg.unmake(n, steps, g)
	}
}
