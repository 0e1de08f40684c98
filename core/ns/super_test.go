package ns

import (
	"testing"

	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

var ways = []lab.Superblocks{lab.KnownNew, lab.SearchHash, lab.SearchList}

// M2: a superblock for a namespace that this very call created is inserted
// without a search, but by the baselines.
func TestMountAtBirth(t *testing.T) {
	for _, how := range ways {
		t.Run(how.String(), func(t *testing.T) {
			r := newRegistry(t)
			r.Use(how)
			before := r.Stats()
			s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWIPC, root))
			after := r.Stats()
			unsearched, searched := after.CreatedUnsearched-before.CreatedUnsearched, after.KeyedSearches-before.KeyedSearches
			if (unsearched == 1) != (how == lab.KnownNew) || unsearched+searched != 1 {
				t.Errorf("got %d superblocks unsearched, %d searched", unsearched, searched)
			}
			sb := s.At(IPC).Superblock(MQueue)
			if sb == nil || sb.Mounts() != 1 || sb.User() != r.First().At(User) || sb.Type() != MQueue {
				t.Fatalf("M2: a new IPC namespace has superblock %+v, want one that is mounted once", sb)
			}
			if n := sb.Namespace(); n != s.At(IPC) {
				t.Errorf("the superblock shows %v, want %v", n, s.At(IPC))
			} else {
				n.Put()
			}
			check(t, r, held(s))
			s.Put()
			check(t, r, held())
			if got := r.Superblocks(MQueue); len(got) != 1 {
				t.Errorf("%d superblocks are left, want the first namespace's", len(got))
			}
		})
	}
}

// M2: a mount that names an existing namespace shares its superblock, whichever
// way that came to be.
func TestMountShares(t *testing.T) {
	for _, how := range ways {
		t.Run(how.String(), func(t *testing.T) {
			r := newRegistry(t)
			r.Use(how)
			s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWIPC|unix.CLONE_NEWNET|unix.CLONE_NEWNS, root))
			for _, c := range []struct {
				fstype string
				key    Kind
				mounts int // after two more
			}{{MQueue, IPC, 3}, {sysfs, Net, 2}} {
				born := s.At(c.key).Superblock(c.fstype)
				for _, target := range []string{"/a", "/b"} {
					wantErrno(t, c.fstype, r.Mount(s, root, c.fstype, target), 0)
				}
				sb := s.At(c.key).Superblock(c.fstype)
				if sb == nil || sb.Mounts() != c.mounts || born != nil && sb != born {
					t.Errorf("M2: %s: got %+v after %+v, want %d mounts of one superblock", c.fstype, sb, born, c.mounts)
				}
			}
			other := must(t)(r.Unshare(s, unix.CLONE_NEWNET, root))
			wantErrno(t, "another namespace", r.Mount(other, root, sysfs, "/c"), 0)
			if other.At(Net).Superblock(sysfs) == s.At(Net).Superblock(sysfs) {
				t.Error("M2: two namespaces share a superblock")
			}
			check(t, r, held(s, other))
			for _, target := range []string{"/c", "/a", "/a", "/b", "/b"} {
				wantErrno(t, "unmount "+target, r.Unmount(s, root, target), 0)
			}
			if sb := s.At(Net).Superblock(sysfs); sb != nil {
				t.Errorf("%+v after its last unmount, want none", sb)
			}
			other.Put()
			s.Put()
			check(t, r, held())
		})
	}
}

// M2: on the keyed path a superblock of another user namespace gives EBUSY.
func TestMountOfAnotherUser(t *testing.T) {
	for _, how := range ways {
		t.Run(how.String(), func(t *testing.T) {
			r := newRegistry(t)
			r.Use(how)
			host := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNET|unix.CLONE_NEWNS, root))
			// A user namespace of its own, with the network namespace of the host.
			inner := must(t)(r.Unshare(host, unix.CLONE_NEWUSER|unix.CLONE_NEWNS, nobody))
			wantErrno(t, "first", r.Mount(host, root, shared, "/x"), 0)
			wantErrno(t, "M2: another user namespace", r.Mount(inner, root, shared, "/x"), unix.EBUSY)
			check(t, r, held(host, inner))
			wantErrno(t, "the owner's type", r.Mount(inner, root, sysfs, "/x"), unix.EPERM)
			wantErrno(t, "unmount", r.Unmount(host, root, "/x"), 0)
			wantErrno(t, "after its death", r.Mount(inner, root, shared, "/x"), 0)
			if got := host.At(Net).Superblock(shared).User(); got != inner.At(User) {
				t.Errorf("the superblock belongs to %v, want %v", got, inner.At(User))
			}
			wantErrno(t, "M2: the other way round", r.Mount(host, root, shared, "/y"), unix.EBUSY)
			inner.Put()
			wantErrno(t, "after the mounter's death", r.Mount(host, root, shared, "/y"), 0)
			host.Put()
			check(t, r, held())
		})
	}
}

// M2: a namespace that dies while its file system is mounted elsewhere loses its
// key, and a later namespace, with the same number, never finds it.
func TestKeyClearedAtDeath(t *testing.T) {
	for _, how := range ways {
		t.Run(how.String(), func(t *testing.T) {
			r := newRegistry(t)
			r.Use(how)
			s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWIPC|unix.CLONE_NEWNET, root))
			ipc, net := s.At(IPC), s.At(Net)
			inums := [Kinds]uint32{IPC: ipc.Inum(), Net: net.Inum()}
			// In the mount namespace of the first process, which outlives them.
			for _, fstype := range []string{MQueue, sysfs} {
				wantErrno(t, fstype, r.Mount(s, root, fstype, "/"+fstype), 0)
			}
			old := []*Superblock{s.At(IPC).Superblock(MQueue), s.At(Net).Superblock(sysfs)}
			s.Put()
			if a, b := ipc.Superblock(MQueue), net.Superblock(sysfs); a != nil || b != nil {
				t.Errorf("dead namespaces lead to superblocks %+v and %+v", a, b)
			}
			for _, sb := range old {
				if n := sb.Namespace(); n != nil || sb.Mounts() != 1 {
					t.Errorf("M2: type %s shows %v, %d mounts; want a key that was cleared, 1 mount", sb.Type(), n, sb.Mounts())
				}
			}
			check(t, r, held())
			s = must(t)(r.Unshare(r.First(), unix.CLONE_NEWIPC|unix.CLONE_NEWNET, root))
			for _, k := range []Kind{IPC, Net} {
				if got := s.At(k).Inum(); got != inums[k] {
					t.Errorf("the next %v namespace has number %d, want %d again", k, got, inums[k])
				}
			}
			for i, fstype := range []string{MQueue, sysfs} {
				wantErrno(t, fstype, r.Mount(s, root, fstype, "/"+fstype), 0)
				if sb := s.At([]Kind{IPC, Net}[i]).Superblock(fstype); sb == old[i] {
					t.Errorf("M2: a later namespace found the %s of a dead one", fstype)
				}
			}
			check(t, r, held(s))
			s.Put()
			for _, target := range []string{"/mqueue", "/mqueue", "/sysfs", "/sysfs"} {
				wantErrno(t, "unmount "+target, r.Unmount(r.First(), root, target), 0)
			}
			check(t, r, held())
			if n := len(r.Superblocks(MQueue)) + len(r.Superblocks(sysfs)); n != 1 {
				t.Errorf("%d superblocks are left, want 1", n)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	r := newRegistry(t)
	for _, c := range []struct {
		t    FSType
		want unix.Errno
	}{
		{FSType{Name: "proc", Key: PID}, 0},
		{FSType{Name: "proc", Key: PID}, unix.EBUSY},
		{FSType{Name: MQueue, Key: IPC}, unix.EBUSY},
		{FSType{Key: IPC}, unix.EINVAL},
		{FSType{Name: "x", Key: Kinds}, unix.EINVAL},
	} {
		wantErrno(t, c.t.Name, r.Register(c.t), c.want)
	}
	wantErrno(t, "a type that is none", r.Mount(r.First(), root, "x", "/x"), unix.ENODEV)
	if got := r.Superblocks("x"); got != nil {
		t.Errorf("a type that is none has %d superblocks", len(got))
	}
}

// Two types keyed by one namespace keep apart, in whichever order they go.
func TestSuperblockChain(t *testing.T) {
	types := []string{sysfs, shared, "third"}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		r := newRegistry(t)
		wantErrno(t, "register", r.Register(FSType{Name: "third", Key: Net}), 0)
		for _, fstype := range types {
			wantErrno(t, fstype, r.Mount(r.First(), root, fstype, "/"+fstype), 0)
		}
		gone := map[string]bool{}
		for _, i := range order {
			wantErrno(t, types[i], r.Unmount(r.First(), root, "/"+types[i]), 0)
			gone[types[i]] = true
			for _, fstype := range types {
				sb := r.First().At(Net).Superblock(fstype)
				if (sb == nil) != gone[fstype] || sb != nil && sb.Type() != fstype {
					t.Fatalf("order %v: type %s: got %+v", order, fstype, sb)
				}
			}
			check(t, r, held())
		}
	}
}
