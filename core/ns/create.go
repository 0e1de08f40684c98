package ns

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/kpidd/kpidd/generated/radix"
	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

// levelMax bounds the level of PID namespaces, and the level of those user
// namespaces that can have children.
const levelMax = 32

// step is a step of the making of a namespace. A namespace is unmade by undoing
// its steps from the last one that was done: after an error, and at its death.
type step uint8

const (
	stepHold   step = iota // references to owner and parent
	stepCharge             // counted in the owner and all above it
	stepNumber             // the inode number, with nothing to be found at it
	stepHandle             // PID: an id tree
	stepMounts             // Mount: copies of the mounts of the maker's namespace
	stepSuper              // IPC: the message queue file system
	stepShow               // visible to lookups

	steps
)

// create makes a namespace with one reference, the caller's. from is the maker's
// namespace of the kind. ENOSPC: too deep, too many, or no number. EINVAL: a PID
// namespace below one that another branch of user namespaces owns. On an error
// nothing is left of it.
func (r *Registry) create(k Kind, from, owner *Namespace, uid uint32) (*Namespace, error) {
	n := r.newNamespace(k, from, owner, uid)
	err := n.fits()
	for s := step(0); err == nil && s < steps; s++ {
		if r.refuse != nil {
			err = r.refuse(s)
		}
		if err == nil {
			err = r.do(n, from, s)
		}
		if err != nil {
			var g grave
			r.unmake(n, s, &g)
			g.close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make %v namespace: %w", k, err)
	}
	return n, nil
}

func (r *Registry) newNamespace(k Kind, from, owner *Namespace, uid uint32) *Namespace {
	n := &Namespace{reg: r, id: r.ids.Add(1), kind: k, owner: owner, uid: uid}
	n.refs.Store(1)
	switch k {
	case User:
		n.counts = newCounts()
		if owner != nil {
			n.level = owner.level + 1
		}
	case PID:
		if n.parent = from; from != nil {
			n.level = from.level + 1
		}
	case Mount:
		n.mounts = new(mounts)
	}
	return n
}

func (n *Namespace) fits() error {
	switch {
	case n.kind == PID && !n.owner.within(n.parent.owner):
		return unix.EINVAL
	case n.kind == PID && n.level > levelMax, n.kind == User && n.level > levelMax+1:
		return unix.ENOSPC
	}
	return nil
}

// do does one step.
func (r *Registry) do(n, from *Namespace, s step) (err error) {
	switch s {
	case stepHold:
		n.owner.Get()
		if n.parent != nil {
			n.parent.Get()
		}
	case stepCharge:
		return n.owner.charge(n.kind)
	case stepNumber:
		key, err := r.tree.Reserve(numberKey(firstDynamic), numberKey(lastNumber))
		if errors.Is(err, radix.ErrTree64Full) {
			return unix.ENOSPC
		}
		n.inum = uint32(key) + firstNumber
		return err
	case stepHandle:
		if n.kind == PID && r.hooks.MakePID != nil {
			n.handle, err = r.hooks.MakePID(n.parent.handle, n.level)
		}
	case stepMounts:
		if n.kind == Mount {
			n.mounts.copyFrom(from.mounts)
		}
	case stepSuper:
		if n.kind == IPC {
			n.super, err = r.mountAtBirth(n)
		}
	case stepShow:
		r.show(n)
	}
	return err
}

// mountAtBirth gives a new IPC namespace its message queue file system. Nothing
// can be found under a key that nobody has seen yet, so nothing is searched (M2).
func (r *Registry) mountAtBirth(n *Namespace) (*Superblock, error) {
	if r.how == lab.KnownNew {
		return r.superNew(r.mqueue, n, n.owner), nil
	}
	return r.superKeyed(r.mqueue, n, n.owner)
}

func (r *Registry) show(n *Namespace) {
	r.live[n.kind].Add(1)
	r.tree.Publish(numberKey(n.inum), n) // A
}

// unmake undoes the steps before s, the last one first. What it gives up last
// references to goes into g.
func (r *Registry) unmake(n *Namespace, s step, g *grave) {
	for s > 0 {
		s--
		r.undo(n, s, g)
	}
}

// undo undoes one step.
func (r *Registry) undo(n *Namespace, s step, g *grave) {
	switch s {
	case stepShow:
		r.live[n.kind].Add(-1)
	case stepSuper:
		r.clearKeys(n)
		if n.kind == IPC {
			r.superPut(n.super, g)
		}
	case stepMounts:
		if n.kind == Mount {
			r.dropAll(n.mounts, g)
		}
	case stepHandle:
		if n.kind == PID && r.hooks.DropPID != nil {
			r.hooks.DropPID(n.handle)
		}
	case stepNumber:
		if !r.tree.Free(numberKey(n.inum)) {
			panic(fmt.Sprintf("ns: I1: the number of %v is freed twice", n))
		}
	case stepCharge:
		n.owner.uncharge(n.kind)
	case stepHold:
		g.put(n.owner)
		if n.parent != nil {
			g.put(n.parent)
		}
	}
}

// counts are a user namespace's numbers of namespaces that it and those below it
// own, and how many there may be. The kernel counts each user id by itself.
type counts struct {
	now, max [Kinds]atomic.Int32
}

func newCounts() *counts {
	c := new(counts)
	for k := range c.max {
		c.max[k].Store(math.MaxInt32)
	}
	return c
}

// SetMax bounds the namespaces of a kind that user namespace n and those below
// it may own together, as user.max_…_namespaces does. More than that may exist.
func (n *Namespace) SetMax(k Kind, limit int32) { n.counts.max[k].Store(limit) }

// charge counts one more namespace in user namespace n and in all above it.
func (n *Namespace) charge(k Kind) error {
	for at := n; at != nil; at = at.owner {
		if !at.counts.more(k) {
			for ; n != at; n = n.owner {
				n.counts.now[k].Add(-1)
			}
			return unix.ENOSPC
		}
	}
	return nil
}

func (n *Namespace) uncharge(k Kind) {
	for ; n != nil; n = n.owner {
		n.counts.now[k].Add(-1)
	}
}

// more counts one more unless the bound is reached.
func (c *counts) more(k Kind) bool {
	for {
		now := c.now[k].Load()
		if now >= c.max[k].Load() {
			return false
		}
		if c.now[k].CompareAndSwap(now, now+1) {
			return true
		}
	}
}
