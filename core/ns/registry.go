package ns

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kpidd/kpidd/generated/radix"
	"github.com/kpidd/kpidd/internal/lab"
	"github.com/puzpuzpuz/xsync/v3"
)

// Registry holds the namespaces of one machine, or of one model, and the types of
// file systems that belong to them.
//
//  1. Made by New; not to be copied.
//  2. I1: a number in the tree is reserved from the making of a namespace to its
//     burial, and shows it from the end of the making on; so whoever finds a
//     namespace finds it whole. I2 (M2): at any time a file-system type has at
//     most one superblock whose key is a given namespace. I3 (M2): the key of a
//     superblock is a namespace whose number is not free yet. I4: a superblock is
//     in its type's list exactly while mounts > 0. I5: live[k] is the number of
//     namespaces of kind k that are made and not buried.
//  3. superMu guards lists, chains, keys and mount counts of all superblocks; only
//     a copy of a mount is counted without it. Types are registered once and stay.
//     Any goroutine may call any method.
//  4. Namespaces: A of Namespace. B: a superblock is whole before its namespace
//     leads to it (supers, also); readers load these first. C: a key is cleared
//     before the chain of its namespace; Superblock.Namespace loads the key, then
//     tries to take the reference, which fails from death on.
//  5. A reader may get a namespace or superblock that dies meanwhile, and never
//     one that is half made. Superblock of a namespace to which the caller has a
//     reference never yields that of another.
//  6. A number goes to the next namespace at once, of whichever kind; the key of
//     the dead one is cleared before.
//  7. Readers are lock-free: chains are as long as there are types keyed by one
//     kind. Making and burying takes superMu for a few stores, whatever the
//     number of namespaces (M2), but for the baselines of internal/lab.
//  8. Source: MECHANISMS.md M2; the keyed superblocks and nsproxy of Linux.
type Registry struct {
	hooks  Hooks
	how    lab.Superblocks  // KnownNew but in measurements; see Use
	refuse func(step) error // only in tests: an error for want of memory, at will

	tree   *radix.Tree64[Namespace] // by numberKey
	types  *xsync.MapOf[string, *superType]
	mqueue *superType // mounted at the birth of each IPC namespace
	first  Set        // of the first process; has a reference that is never given up
	ids    atomic.Uint64
	live   [Kinds]atomic.Int64

	unsearched, searched *xsync.Counter

	superMu sync.Mutex
}

// Hooks tie PID namespaces to those who keep their ids. MakePID is told the
// handle and the level of the namespace above it; its error undoes the making and
// is returned. DropPID is told of the burial. Both may be nil; the first PID
// namespace has handle 0 and is not told. They are called without a lock held.
type Hooks struct {
	MakePID func(parent, level uint32) (handle uint32, err error)
	DropPID func(handle uint32)
}

// Stats are the counters of a registry since it was made, and what lives now.
type Stats struct {
	CreatedUnsearched uint64 // superblocks inserted without a search
	KeyedSearches     uint64 // searches by key
	Namespaces        [Kinds]uint64
}

// MQueue is the type of the file system that each IPC namespace is born with.
const MQueue = "mqueue"

// New returns a registry with the first namespace of each kind.
func New(h Hooks) *Registry {
	r := &Registry{
		hooks: h,
		tree:  radix.NewTree64[Namespace](), types: xsync.NewMapOf[string, *superType](),
		unsearched: xsync.NewCounter(), searched: xsync.NewCounter(),
	}
	r.mqueue = newType(FSType{Name: MQueue, Key: IPC})
	r.types.Store(MQueue, r.mqueue)
	// The first user namespace owns the others.
	r.makeFirst(User)
	for k := range Kind(Kinds) {
		if k != User {
			r.makeFirst(k)
		}
	}
	r.first.pidForChildren = r.first.ns[PID].Get()
	r.first.timeForChildren = r.first.ns[Time].Get()
	r.first.refs.Store(1)
	return r
}

func (r *Registry) makeFirst(k Kind) {
	n := r.newNamespace(k, nil, r.first.ns[User], 0)
	n.inum = kinds[k].inum
	if err := r.tree.ReserveAt(numberKey(n.inum)); err != nil {
		panic(fmt.Sprintf("ns: I1: first namespace: %v", err)) // the tree is empty
	}
	if n.owner != nil {
		n.owner.Get()
	}
	if k == IPC {
		n.super = r.superNew(r.mqueue, n, n.owner)
	}
	r.show(n)
	r.first.ns[k] = n
}

// Use changes how superblocks are found from now on, to measure one way against
// another over the same namespaces. Nobody else may use the registry meanwhile.
func (r *Registry) Use(how lab.Superblocks) {
	r.how = how
	r.types.Range(func(_ string, t *superType) bool {
		t.hash = nil
		if how == lab.SearchHash {
			t.hash = make(map[*Namespace]*Superblock)
			for sb := t.supers.next; sb != &t.supers; sb = sb.next {
				if key := sb.key.Load(); key != nil {
					t.hash[key] = sb
				}
			}
		}
		return true
	})
}

// First is the set of the first process. Callers use it without a reference of
// their own: it never dies.
func (r *Registry) First() *Set { return &r.first }

// Lookup returns the namespace of the kind with the inode number, nil if there is
// none. Lock-free. The caller gets no reference: it may be dying.
func (r *Registry) Lookup(k Kind, inum uint32) *Namespace {
	n := r.tree.Lookup(numberKey(inum)) // A
	if n == nil || n.kind != k {
		return nil
	}
	return n
}

// Get is Lookup with a reference, which the caller gives up by Put. Lock-free.
func (r *Registry) Get(k Kind, inum uint32) *Namespace {
	if n := r.Lookup(k, inum); n != nil && n.TryGet() {
		return n
	}
	return nil
}

// Stats returns the counters of this moment.
func (r *Registry) Stats() Stats {
	s := Stats{CreatedUnsearched: uint64(r.unsearched.Value()), KeyedSearches: uint64(r.searched.Value())}
	for k := range s.Namespaces {
		s.Namespaces[k] = uint64(r.live[k].Load())
	}
	return s
}
