package ns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch/archtest"
	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

const stressWriters = 4

// stress has processes make, enter, mount and leave namespaces, each others' too,
// while checkers look for a namespace with two superblocks and readers follow
// every pointer that they may.
type stress struct {
	r      *Registry
	mount  func(s *Set, fstype, target string) error
	get    func(k Kind, inum uint32) *Namespace
	stop   atomic.Bool
	failed atomic.Pointer[error]
	calls  atomic.Int64
	shared atomic.Int64 // superblocks found by a mount that another had made
}

func newStress(tb testing.TB, how lab.Superblocks) *stress {
	st := &stress{r: newRegistry(tb)}
	st.r.Use(how)
	st.mount = func(s *Set, fstype, target string) error { return st.r.Mount(s, root, fstype, target) }
	st.get = st.r.Get
	return st
}

func (st *stress) fail(err error) {
	st.failed.CompareAndSwap(nil, &err)
	st.stop.Store(true)
}

// run lets all at each other until the limit or the first failure, and examines
// what is left.
func (st *stress) run(limit time.Duration) error {
	var wg sync.WaitGroup
	for id := range uint64(stressWriters) {
		wg.Go(func() { st.guard(func() { st.write(rand.New(rand.NewPCG(id, 3))) }) })
	}
	wg.Go(func() { st.guard(st.checkKeys) })
	wg.Go(func() { st.guard(st.read) })
	timer := time.AfterFunc(limit, func() { st.stop.Store(true) })
	wg.Wait()
	timer.Stop()
	if err := st.failed.Load(); err != nil {
		return *err
	}
	first := st.r.First().At(Mount)
	for len(first.mounts.list) > 0 {
		if err := st.r.Unmount(st.r.First(), root, first.mounts.list[0].target); err != nil {
			return err
		}
	}
	return examine(st.r, held())
}

// guard turns a broken invariant's panic into a failure.
func (st *stress) guard(actor func()) {
	defer func() {
		if why := recover(); why != nil {
			st.fail(fmt.Errorf("panic: %v", why))
		}
	}()
	actor()
}

// write is the life of one process after the other.
func (st *stress) write(rnd *rand.Rand) {
	first := st.r.First()
	for !st.stop.Load() {
		flags := rnd.Uint64() & (unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS)
		s, err := st.r.Clone(first, flags, root)
		if err != nil {
			st.fail(err)
			return
		}
		for range 4 {
			s = st.enterOther(s, rnd)
			st.mountSome(s, rnd)
			if rnd.IntN(4) == 0 {
				runtime.Gosched()
			}
		}
		if rnd.IntN(8) == 0 { // what stays mounted elsewhere outlives its key
			st.keepMounted(s)
		}
		s.Put()
		st.calls.Add(1)
	}
}

// enterOther enters a namespace that another process may be leaving.
func (st *stress) enterOther(s *Set, rnd *rand.Rand) *Set {
	k := [...]Kind{IPC, Net, Mount}[rnd.IntN(3)]
	n := st.get(k, firstDynamic+rnd.Uint32N(8*stressWriters))
	if n == nil {
		return s
	}
	defer n.Put()
	if rnd.IntN(4) == 0 {
		if err := st.r.Bind(s, root, n, "/pin"); err != nil && !errors.Is(err, unix.EINVAL) {
			st.fail(err)
		}
		return s
	}
	entered, err := st.r.Setns(s, n, 0, root)
	if err != nil {
		st.fail(err)
		return s
	}
	s.Put()
	return entered
}

// mountSome mounts and unmounts in what may be everybody's mount namespace.
func (st *stress) mountSome(s *Set, rnd *rand.Rand) {
	fstype, key := sysfs, s.At(Net)
	if rnd.IntN(3) == 0 {
		fstype, key = MQueue, s.At(IPC)
	}
	had := key.Superblock(fstype)
	err := st.mount(s, fstype, "/"+fstype)
	if err != nil && !errors.Is(err, unix.EBUSY) {
		st.fail(err)
	}
	if had != nil && had == key.Superblock(fstype) {
		st.shared.Add(1)
	}
	if fstype == MQueue && had == nil {
		st.fail(fmt.Errorf("M2: %v has no message queue file system", key))
	}
	for range 2 { // often none is left, another has unmounted it
		err := st.r.Unmount(s, root, "/"+[...]string{sysfs, MQueue, "pin"}[rnd.IntN(3)])
		if err != nil && !errors.Is(err, unix.EINVAL) {
			st.fail(err)
		}
	}
}

// keepMounted mounts in the first mount namespace what belongs to s.
func (st *stress) keepMounted(s *Set) {
	there, err := st.r.Setns(s, st.r.First().At(Mount), 0, root)
	if err != nil {
		st.fail(err)
		return
	}
	if err := st.mount(there, MQueue, "/kept"); err != nil && !errors.Is(err, unix.EBUSY) {
		st.fail(err)
	}
	there.Put()
	if st.calls.Load()%2 == 0 {
		_ = st.r.Unmount(st.r.First(), root, "/kept")
	}
}

// checkKeys: never two superblocks of one namespace.
func (st *stress) checkKeys() {
	for !st.stop.Load() {
		for _, fstype := range []string{MQueue, sysfs} {
			keys := map[*Namespace]bool{}
			for _, sb := range st.r.Superblocks(fstype) {
				n := sb.key.Load()
				if n != nil && keys[n] {
					st.fail(fmt.Errorf("registry I2: %v has two superblocks of type %s", n, fstype))
					return
				}
				keys[n] = true
			}
		}
		runtime.Gosched()
	}
}

// read follows superblocks to their namespaces and back.
func (st *stress) read() {
	for i := uint32(0); !st.stop.Load(); i++ {
		k := [...]Kind{IPC, Net}[i&1]
		fstype := [...]string{MQueue, sysfs}[i&1]
		n := st.r.Lookup(k, firstDynamic+i/2%(8*stressWriters))
		if n == nil {
			continue
		}
		if n.kind != k || n.owner == nil || n.inum != firstDynamic+i/2%(8*stressWriters) {
			st.fail(fmt.Errorf("lookup of %v found %v", k, n))
			return
		}
		sb := n.Superblock(fstype)
		if sb == nil {
			continue
		}
		if to := sb.Namespace(); to != nil {
			if to != n || sb.typ.Name != fstype {
				st.fail(fmt.Errorf("superblock of %v, type %s, shows %v", n, sb.Type(), to))
				return
			}
			to.Put()
		}
	}
}

func TestStressRegistry(t *testing.T) {
	for _, how := range ways {
		t.Run(how.String(), func(t *testing.T) {
			st := newStress(t, how)
			if err := st.run(archtest.StressTime() / 2); err != nil {
				t.Fatal(err)
			}
			if st.calls.Load() == 0 || st.shared.Load() == 0 {
				t.Errorf("%d lives, %d superblocks shared: the check saw nothing", st.calls.Load(), st.shared.Load())
			}
			t.Logf("%d lives, %d superblocks shared", st.calls.Load(), st.shared.Load())
		})
	}
}

// M2: first mounts of one namespace, all at the same moment, yield one superblock.
func TestStressFirstMount(t *testing.T) {
	const mounters = 4
	for _, how := range ways {
		r := newRegistry(t)
		r.Use(how)
		typ, _ := r.types.Load(sysfs)
		stop := time.Now().Add(archtest.StressTime() / 4)
		for rounds := 0; time.Now().Before(stop); rounds++ {
			s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNET, root))
			n := s.At(Net)
			var ready atomic.Int32
			var wg sync.WaitGroup
			var got [mounters]*Superblock
			for i := range mounters {
				wg.Go(func() {
					for ready.Add(1); ready.Load() < mounters; {
						runtime.Gosched()
					}
					got[i], _ = r.superKeyed(typ, n, n.owner)
				})
			}
			wg.Wait()
			var g grave
			for _, sb := range got {
				if sb != got[0] || sb == nil {
					t.Fatalf("M2: %v, round %d: %p and %p for one namespace", how, rounds, got[0], sb)
				}
				r.superPut(sb, &g)
			}
			g.close()
			s.Put()
		}
		check(t, r, held())
	}
}

// Broken variants, each caught by the same check: a search whose lock is let go
// before the insertion, M2's way without a search for a namespace that is not new,
// and a reference to a namespace found by number whatever its state.
func TestStressCatchesBusted(t *testing.T) {
	for name, bust := range map[string]func(st *stress){
		"search, unlock, insert": func(st *stress) {
			st.bustMount(func(t *superType, n *Namespace) *Superblock {
				st.r.superMu.Lock()
				sb := st.r.searchLocked(t, n)
				if sb != nil {
					sb.mounts.Add(1)
				}
				st.r.superMu.Unlock()
				if sb != nil {
					return sb
				}
				runtime.Gosched()
				sb = &Superblock{typ: t, user: n.owner.Get()}
				st.r.superMu.Lock()
				defer st.r.superMu.Unlock()
				st.r.linkLocked(sb, n)
				return sb
			})
		},
		"a known namespace taken for new": func(st *stress) {
			st.bustMount(func(t *superType, n *Namespace) *Superblock {
				sb := &Superblock{typ: t, user: n.owner.Get()}
				st.r.superMu.Lock()
				defer st.r.superMu.Unlock()
				st.r.linkLocked(sb, n)
				return sb
			})
		},
		"a reference from 0": func(st *stress) {
			st.get = func(k Kind, inum uint32) *Namespace {
				n := st.r.Lookup(k, inum)
				if n != nil {
					runtime.Gosched()
					n.refs.Add(1)
				}
				return n
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			archtest.MustCatch(t, func(limit time.Duration) bool {
				st := newStress(t, lab.KnownNew)
				bust(st)
				err := st.run(limit)
				t.Log(err)
				return err != nil
			})
		})
	}
}

// bustMount puts another way to find a superblock into mount.
func (st *stress) bustMount(super func(t *superType, n *Namespace) *Superblock) {
	st.mount = func(s *Set, fstype, target string) error {
		t, _ := st.r.types.Load(fstype)
		sb := super(t, s.At(t.Key))
		if s.At(Mount).mounts.add(mount{target: target, sb: sb}) {
			return nil
		}
		var g grave
		st.r.superPut(sb, &g)
		g.close()
		return unix.EBUSY
	}
}
