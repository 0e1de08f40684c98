package ns

import (
	"fmt"
	"sync/atomic"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

// FSType is a type of file systems that belong to namespaces.
type FSType struct {
	Name string // as in mount(2)
	Key  Kind   // one superblock for each namespace of this kind
	// ByMounter says that a superblock belongs to the user namespace of who mounts
	// it first, and to nobody else; without it, to the one that owns the key.
	ByMounter bool
}

// superType is a registered type with its superblocks.
type superType struct {
	FSType
	supers Superblock                 // head of the ring; guarded by superMu
	hash   map[*Namespace]*Superblock // lab.SearchHash only; guarded by superMu
}

// Superblock is a file system that is mounted somewhere. Its invariants and
// ordering are those of Registry.
type Superblock struct {
	typ    *superType                 // immutable
	user   *Namespace                 // immutable: it belongs to this user namespace; a reference
	key    atomic.Pointer[Namespace]  // no reference; nil once that is dead; written under superMu
	also   atomic.Pointer[Superblock] // the next with this key; written under superMu
	mounts atomic.Int32               // under superMu, but that who has a mount may add one
	next   *Superblock                // of the type's ring; guarded by superMu
	prev   *Superblock                // guarded by superMu
}

// Type is the name of its type.
func (sb *Superblock) Type() string { return sb.typ.Name }

// User is the user namespace that it belongs to.
func (sb *Superblock) User() *Namespace { return sb.user }

// Mounts is the number of its mounts, the internal one of an IPC namespace
// included. At 0 it is dead.
func (sb *Superblock) Mounts() int { return int(sb.mounts.Load()) }

// Namespace is the namespace that it shows, with a reference for the caller, or
// nil if that is dead. Lock-free.
func (sb *Superblock) Namespace() *Namespace {
	if n := sb.key.Load(); n != nil && n.TryGet() { // C
		return n
	}
	return nil
}

// Superblock returns the superblock of the type whose key is n, nil if none is
// mounted. Lock-free; no reference is taken.
func (n *Namespace) Superblock(fstype string) *Superblock {
	for sb := n.supers.Load(); sb != nil; sb = sb.also.Load() { // B
		if sb.typ.Name == fstype {
			return sb
		}
	}
	return nil
}

// Register adds a type of file systems. Call it before Use. EBUSY: there is one of that name. EINVAL: no name or kind.
func (r *Registry) Register(t FSType) error {
	if t.Name == "" || t.Key >= Kinds {
		return fmt.Errorf("register file-system type %q: %w", t.Name, unix.EINVAL)
	}
	if _, taken := r.types.LoadOrStore(t.Name, newType(t)); taken {
		return fmt.Errorf("register file-system type %q: %w", t.Name, unix.EBUSY)
	}
	return nil
}

func newType(t FSType) *superType {
	typ := &superType{FSType: t}
	typ.supers.next, typ.supers.prev = &typ.supers, &typ.supers
	return typ
}

// Superblocks returns all superblocks of a type at this moment, those whose
// namespace is dead included, the newest first.
func (r *Registry) Superblocks(fstype string) (all []*Superblock) {
	if t, ok := r.types.Load(fstype); ok {
		r.superMu.Lock()
		defer r.superMu.Unlock()
		for sb := t.supers.next; sb != &t.supers; sb = sb.next {
			all = append(all, sb)
		}
	}
	return all
}

// superNew makes the superblock of a key that no other call can have used, and
// mounts it once: M2's way without a search.
func (r *Registry) superNew(t *superType, key, user *Namespace) *Superblock {
	sb := &Superblock{typ: t, user: user.Get()}
	r.unsearched.Inc()
	r.superMu.Lock()
	defer r.superMu.Unlock()
	if arch.Invariants && r.searchLocked(t, key) != nil {
		panic(fmt.Sprintf("ns: M2: %v is not new: it has a superblock of type %s", key, t.Name))
	}
	r.linkLocked(sb, key)
	return sb
}

// superKeyed mounts the superblock of a key once more, or a new one if there is
// none: M2's keyed way. The caller has a reference to the key. EBUSY: it belongs
// to another user namespace than user.
func (r *Registry) superKeyed(t *superType, key, user *Namespace) (*Superblock, error) {
	r.searched.Inc()
	r.superMu.Lock()
	defer r.superMu.Unlock()
	sb := r.searchLocked(t, key)
	switch {
	case sb == nil:
		sb = &Superblock{typ: t, user: user.Get()}
		r.linkLocked(sb, key)
	case sb.user != user:
		return nil, unix.EBUSY
	default:
		sb.mounts.Add(1)
	}
	return sb, nil
}

// searchLocked finds the superblock of a key. Those of dead namespaces have none.
func (r *Registry) searchLocked(t *superType, key *Namespace) *Superblock {
	switch r.how {
	case lab.SearchList:
		for sb := t.supers.next; sb != &t.supers; sb = sb.next {
			if sb.key.Load() == key {
				return sb
			}
		}
		return nil
	case lab.SearchHash:
		return t.hash[key]
	}
	for sb := key.supers.Load(); sb != nil; sb = sb.also.Load() {
		if sb.typ == t {
			return sb
		}
	}
	return nil
}

// linkLocked makes a superblock known, with one mount.
func (r *Registry) linkLocked(sb *Superblock, key *Namespace) {
	t := sb.typ
	sb.mounts.Store(1)
	sb.key.Store(key)
	sb.also.Store(key.supers.Load())
	key.supers.Store(sb) // B
	sb.next, sb.prev = t.supers.next, &t.supers
	sb.next.prev, sb.prev.next = sb, sb
	if t.hash != nil {
		t.hash[key] = sb
	}
}

// superPut gives up a mount. The last one is the superblock's death.
func (r *Registry) superPut(sb *Superblock, g *grave) {
	r.superMu.Lock()
	left := sb.mounts.Add(-1)
	if left == 0 {
		sb.next.prev, sb.prev.next = sb.prev, sb.next
		sb.next, sb.prev = nil, nil
		if key := sb.key.Load(); key != nil {
			r.clearKeyLocked(sb) // C
			key.unchainLocked(sb)
		}
	}
	r.superMu.Unlock()
	switch {
	case left == 0:
		g.put(sb.user)
	case left < 0:
		panic(fmt.Sprintf("ns: I4: superblock of type %s unmounted twice", sb.typ.Name))
	}
}

// unchainLocked takes sb out of the chain of its key. A reader that stands on it
// goes on to what comes behind.
func (n *Namespace) unchainLocked(sb *Superblock) {
	at := &n.supers
	for at.Load() != sb {
		at = &at.Load().also
	}
	at.Store(sb.also.Load())
}

// clearKeys takes the keys from the superblocks of a dying namespace, which may
// be mounted elsewhere and live on: no later namespace finds them (M2).
func (r *Registry) clearKeys(n *Namespace) {
	if n.supers.Load() == nil { // only one who has a reference could add to it
		return
	}
	r.superMu.Lock()
	defer r.superMu.Unlock()
	for sb := n.supers.Load(); sb != nil; sb = sb.also.Load() {
		r.clearKeyLocked(sb) // C
	}
	n.supers.Store(nil)
}

func (r *Registry) clearKeyLocked(sb *Superblock) {
	if t := sb.typ; t.hash != nil {
		delete(t.hash, sb.key.Load())
	}
	sb.key.Store(nil)
}
