package ns

import (
	"sync"
	"sync/atomic"

	"github.com/kpidd/kpidd/generated/radix"
	"github.com/puzpuzpuz/xsync/v3"
)

// Life names one life of a namespace that was observed. The zero value is none.
type Life struct {
	Inum uint32 // what /proc/PID/ns shows; the kernel reuses it at once, also for another kind
	Gen  uint32 // kpidd's own: no two lives in a row share it
}

// Observed holds the namespaces in which the running kernel shows processes.
//
//  1. Made by NewObserved; not to be copied.
//  2. I1: an inode number has at most one holder. I2: a holder is in the tree
//     while processes are known in it, until another takes its number. I3: a Leave
//     moves the count of the life that it names and of no later one.
//  3. mu guards the holders' counts and all changes of the tree; kind and gen of a
//     holder are immutable. Any goroutine may call any method.
//  4. A: a holder is whole before the tree shows it; readers load from the tree first.
//  5. A reader may get a life that ends meanwhile; never kind and generation of
//     two different lives.
//  6. The collector keeps holders. A number is reused at once, with a new
//     generation.
//  7. Lookup is wait-free. All else takes mu for a walk down the tree, however
//     many namespaces there are.
//  8. Source: MECHANISMS.md M2, Live.
type Observed struct {
	tree  *radix.Tree64[holder] // by numberKey
	count [Kinds]atomic.Int64

	created, searched, replaced *xsync.Counter

	mu  sync.Mutex
	gen uint32
}

// holder is who has an inode number.
type holder struct {
	gen   uint32
	kind  Kind
	users int // processes; guarded by mu
}

// ObservedStats are the counters since the table was made.
type ObservedStats struct {
	CreatedUnsearched uint64 // namespaces that an event said were just made
	KeyedSearches     uint64 // namespaces met otherwise
	Replaced          uint64 // holders whose death was never told: their number had another
}

// NewObserved returns an empty table.
func NewObserved() *Observed {
	return &Observed{
		tree:    radix.NewTree64[holder](),
		created: xsync.NewCounter(), searched: xsync.NewCounter(), replaced: xsync.NewCounter(),
	}
}

// Created enters a namespace that a process has just made, by its clone or
// unshare, with that process in it. Whoever has the number is dead, so nothing is
// compared (M2).
func (o *Observed) Created(k Kind, inum uint32) Life {
	o.created.Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.enterLocked(k, inum)
}

// Met puts one more process into a namespace that was not made for it: a setns, a
// change that was noticed late, a snapshot. A holder of the same kind is taken for
// the same namespace; one of another kind is dead.
func (o *Observed) Met(k Kind, inum uint32) Life {
	o.searched.Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.tree.Lookup(numberKey(inum)); h != nil && h.kind == k {
		h.users++
		return Life{inum, h.gen}
	}
	return o.enterLocked(k, inum)
}

// Share puts one more process into a life that one is known in: a fork without a
// new namespace. Of a life that is over it does nothing.
func (o *Observed) Share(l Life) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.holderLocked(l); h != nil {
		h.users++
	}
}

// Leave takes a process out of a life. The last one ends it: if something else
// pins the namespace and it is met again, that counts as another life. Of a life
// that is over it does nothing.
func (o *Observed) Leave(l Life) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.holderLocked(l)
	if h == nil {
		return
	}
	if h.users--; h.users == 0 {
		o.tree.Delete(numberKey(l.Inum))
		o.count[h.kind].Add(-1)
	}
}

// Lookup returns the life that has the number now. Lock-free.
func (o *Observed) Lookup(k Kind, inum uint32) (l Life, ok bool) {
	h := o.tree.Lookup(numberKey(inum)) // A
	if h == nil || h.kind != k {
		return Life{}, false
	}
	return Life{inum, h.gen}, true
}

// Count is the number of namespaces of a kind with processes in them.
func (o *Observed) Count(k Kind) int { return int(o.count[k].Load()) }

// Stats returns the counters of this moment.
func (o *Observed) Stats() ObservedStats {
	return ObservedStats{uint64(o.created.Value()), uint64(o.searched.Value()), uint64(o.replaced.Value())}
}

// enterLocked gives the number to a new life with one process, whoever has it.
func (o *Observed) enterLocked(k Kind, inum uint32) Life {
	if o.gen++; o.gen == 0 {
		o.gen = 1 // 0 is no life
	}
	old, err := o.tree.Insert(numberKey(inum), &holder{gen: o.gen, kind: k, users: 1}) // A
	if err != nil {
		panic("ns: I1: " + err.Error()) // every number is a key
	}
	o.count[k].Add(1)
	if old != nil {
		o.replaced.Inc()
		o.count[old.kind].Add(-1)
	}
	return Life{inum, o.gen}
}

// holderLocked is the holder of the number if it is of this life.
func (o *Observed) holderLocked(l Life) *holder {
	if h := o.tree.Lookup(numberKey(l.Inum)); h != nil && h.gen == l.Gen {
		return h
	}
	return nil
}
