package ns

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// Types that the tests register: one for each way to own a superblock.
const (
	sysfs  = "sysfs"  // keyed by Net, belongs to the owner of the namespace
	shared = "shared" // keyed by Net, belongs to who mounts it first
)

// Callers.
var (
	root   = Caller{Admin: true}
	nobody = Caller{EUID: 65534}
)

func newRegistry(tb testing.TB) *Registry {
	tb.Helper()
	r := New(Hooks{})
	for _, t := range []FSType{{Name: sysfs, Key: Net}, {Name: shared, Key: Net, ByMounter: true}} {
		if err := r.Register(t); err != nil {
			tb.Fatal(err)
		}
	}
	return r
}

// must returns the set that a call made.
func must(tb testing.TB) func(*Set, error) *Set {
	return func(s *Set, err error) *Set {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
}

// wantErrno fails unless err is exactly the errno, 0 for none.
func wantErrno(tb testing.TB, what string, err error, want unix.Errno) {
	tb.Helper()
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		tb.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// all returns every namespace that can be found, by number.
func (r *Registry) all() (list []*Namespace) {
	buf := make([]radix.Tree64Entry[Namespace], 64)
	for from, more := uint64(0), true; more; {
		var got int
		got, from, more = r.tree.GangAll(from, buf)
		for _, e := range buf[:got] {
			list = append(list, e.Value)
		}
	}
	return list
}

// roots are what keeps namespaces alive from outside: sets, with the number of
// their references, and open files.
type roots struct {
	sets  map[*Set]int64
	files []*File
}

// held are the roots when each of the sets is held once; one may be named twice.
func held(sets ...*Set) roots {
	from := roots{sets: map[*Set]int64{}}
	for _, s := range sets {
		from.sets[s]++
	}
	return from
}

// examiner recounts at a quiet moment all that the registry counts.
type examiner struct {
	r      *Registry
	refs   map[*Namespace]int64
	mounts map[*Superblock]int32
	live   [Kinds]int64
	owned  map[*Namespace]*[Kinds]int32
}

// examine returns an error that names the first invariant that does not hold.
func examine(r *Registry, from roots) error {
	x := &examiner{r: r, refs: map[*Namespace]int64{}, mounts: map[*Superblock]int32{}, owned: map[*Namespace]*[Kinds]int32{}}
	if err := x.countSets(from); err != nil {
		return err
	}
	all := r.all()
	for _, n := range all {
		x.countNamespace(n)
	}
	for _, check := range []func() error{
		r.tree.Check, x.superblocks,
		func() error { return x.namespaces(all) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (x *examiner) countSets(from roots) error {
	sets := map[*Set]int64{x.r.First(): 1}
	for s, refs := range from.sets {
		sets[s] += refs
	}
	for s, refs := range sets {
		if got := s.refs.Load(); got != refs {
			return fmt.Errorf("set I1: %d references, want %d", got, refs)
		}
		for _, n := range append(s.ns[:], s.pidForChildren, s.timeForChildren) {
			x.refs[n]++
		}
	}
	for _, f := range from.files {
		if n := f.Namespace(); n != nil {
			x.refs[n]++
		}
	}
	return nil
}

func (x *examiner) countNamespace(n *Namespace) {
	x.live[n.kind]++
	x.refs[n] += 0
	if n.parent != nil {
		x.refs[n.parent]++
	}
	if n.owner != nil {
		x.refs[n.owner]++
	}
	if n.id > Kinds { // the first of each kind are not charged
		for u := n.owner; u != nil; u = u.owner {
			if x.owned[u] == nil {
				x.owned[u] = new([Kinds]int32)
			}
			x.owned[u][n.kind]++
		}
	}
	if n.super != nil {
		x.mounts[n.super]++
	}
	if n.mounts == nil {
		return
	}
	for _, m := range n.mounts.list {
		if m.pin != nil {
			x.refs[m.pin]++
		} else {
			x.mounts[m.sb]++
		}
	}
}

func (x *examiner) superblocks() (err error) {
	seen := 0
	chained := 0
	x.r.types.Range(func(name string, t *superType) bool {
		keys := map[*Namespace]bool{}
		for sb := t.supers.next; sb != &t.supers && err == nil; sb = sb.next {
			seen++
			x.refs[sb.user]++
			key := sb.key.Load()
			switch {
			case sb.typ != t || sb.next.prev != sb:
				err = fmt.Errorf("registry I4: the list of type %s is broken", name)
			case sb.mounts.Load() != x.mounts[sb] || x.mounts[sb] < 1:
				err = fmt.Errorf("registry I4: type %s: %d mounts, want %d", name, sb.mounts.Load(), x.mounts[sb])
			case key == nil:
			case keys[key]:
				err = fmt.Errorf("registry I2: %v has two superblocks of type %s", key, name)
			case x.r.tree.Lookup(numberKey(key.inum)) != key:
				err = fmt.Errorf("registry I3: type %s has the key of dead namespace %v", name, key)
			case key.Superblock(name) != sb:
				err = fmt.Errorf("namespace I4: %v does not lead to its superblock of type %s", key, name)
			default:
				keys[key] = true
				chained++
			}
		}
		if err == nil && t.hash != nil && len(t.hash) != len(keys) {
			err = fmt.Errorf("registry I2: type %s: %d superblocks in the hash, want %d", name, len(t.hash), len(keys))
		}
		return err == nil
	})
	if err == nil && seen != len(x.mounts) {
		err = fmt.Errorf("registry I4: %d superblocks are listed, %d are mounted", seen, len(x.mounts))
	}
	for _, n := range x.r.all() {
		for sb := n.supers.Load(); sb != nil; sb = sb.also.Load() {
			chained--
		}
	}
	if err == nil && chained != 0 {
		err = fmt.Errorf("namespace I4: the chains hold %d superblocks that have no such key", -chained)
	}
	return err
}

func (x *examiner) namespaces(all []*Namespace) error {
	if len(x.refs) != len(all) {
		return fmt.Errorf("namespace I2: %d namespaces are referred to, %d can be found", len(x.refs), len(all))
	}
	for _, n := range all {
		switch owned := x.owned[n]; {
		case n.refs.Load() != x.refs[n] || x.refs[n] < 1:
			return fmt.Errorf("namespace I1: %v: %d references, want %d", n, n.refs.Load(), x.refs[n])
		case n.kind == PID && n.parent != nil && n.level != n.parent.level+1,
			n.kind == User && n.owner != nil && n.level != n.owner.level+1:
			return fmt.Errorf("namespace I3: %v has level %d", n, n.level)
		case n.kind == IPC && n.super.key.Load() != n:
			return fmt.Errorf("M2: %v has no message queue file system", n)
		case n.kind == User:
			for k := range n.counts.now {
				var want int32
				if owned != nil {
					want = owned[k]
				}
				if got := n.counts.now[k].Load(); got != want {
					return fmt.Errorf("%v owns %d of kind %v, want %d", n, got, Kind(k), want)
				}
			}
		}
	}
	for k := range x.live {
		if got := x.r.live[k].Load(); got != x.live[k] {
			return fmt.Errorf("registry I5: %d of kind %v, want %d", got, Kind(k), x.live[k])
		}
	}
	return nil
}

// check fails the test if the registry is not in order.
func check(tb testing.TB, r *Registry, from roots) {
	tb.Helper()
	if err := examine(r, from); err != nil {
		tb.Fatal(err)
	}
}

// The examiner's own check: each damage is seen.
func TestExaminerSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(r *Registry, s *Set){
		"a lost reference":           func(r *Registry, s *Set) { s.At(Net).refs.Add(-1) },
		"a leaked reference":         func(r *Registry, s *Set) { s.At(User).Get() },
		"a leaked set":               func(r *Registry, s *Set) { s.Get() },
		"a leaked namespace":         func(r *Registry, s *Set) { _, _ = r.create(UTS, nil, s.At(User), 0) },
		"a leaked superblock":        func(r *Registry, s *Set) { r.superNew(r.mqueue, new(Namespace), s.At(User)) },
		"a leaked mount":             func(r *Registry, s *Set) { s.At(IPC).super.mounts.Add(1) },
		"a namespace out of sight":   func(r *Registry, s *Set) { r.tree.Withdraw(numberKey(s.At(IPC).inum)) },
		"a key that was not cleared": func(r *Registry, s *Set) { s.At(IPC).super.key.Store(&Namespace{inum: 5}) },
		"a key lost":                 func(r *Registry, s *Set) { s.At(IPC).super.key.Store(nil) },
		"a chain lost":               func(r *Registry, s *Set) { s.At(IPC).supers.Store(nil) },
		"a wrong level":              func(r *Registry, s *Set) { s.At(PID).level++ },
		"a wrong count":              func(r *Registry, s *Set) { r.live[UTS].Add(1) },
		"a charge not given back":    func(r *Registry, s *Set) { s.At(User).owner.counts.now[UTS].Add(1) },
		"two superblocks of one namespace": func(r *Registry, s *Set) {
			n := s.At(IPC)
			sb := &Superblock{typ: r.mqueue, user: n.owner.Get()}
			r.linkLocked(sb, n)
			s.At(Mount).mounts.add(mount{target: "/twice", sb: sb})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			s := must(t)(r.Clone(r.First(), namespaceFlags, root))
			from := roots{sets: map[*Set]int64{s: 1}}
			check(t, r, from)
			damage(r, s)
			if err := examine(r, from); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}
