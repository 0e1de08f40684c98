package ns

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// A descriptor keeps a namespace without a process.
func TestFilePins(t *testing.T) {
	r := newRegistry(t)
	s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWIPC, root))
	n := s.At(IPC)
	f, err := n.Open()
	wantErrno(t, "open", err, 0)
	s.Put()
	if got := r.Lookup(IPC, n.Inum()); got != n || f.Namespace() != n {
		t.Errorf("an open namespace is found as %v", got)
	}
	check(t, r, roots{files: []*File{f}})
	s = must(t)(r.Setns(r.First(), f.Namespace(), unix.CLONE_NEWIPC, root))
	wantErrno(t, "close", f.Close(), 0)
	wantErrno(t, "close again", f.Close(), unix.EBADF)
	check(t, r, held(s))
	s.Put()
	check(t, r, held())
	_, err = n.Open()
	wantErrno(t, "open a dead one", err, unix.ENOENT)
	if n.TryGet() || r.Get(IPC, n.Inum()) != nil {
		t.Error("a dead namespace gave a reference")
	}
}

// A mount keeps a namespace until it goes, alone or with its mount namespace.
func TestMountPins(t *testing.T) {
	r := newRegistry(t)
	in := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNS, root))
	s := must(t)(r.Unshare(in, unix.CLONE_NEWNET|unix.CLONE_NEWUTS, root))
	net, uts := s.At(Net), s.At(UTS)
	wantErrno(t, "bind", r.Bind(in, root, net, "/net"), 0)
	wantErrno(t, "bind", r.Bind(in, root, uts, "/uts"), 0)
	wantErrno(t, "bind without the capability", r.Bind(in, nobody, uts, "/uts"), unix.EPERM)
	s.Put()
	check(t, r, held(in))
	wantErrno(t, "unmount without the capability", r.Unmount(in, nobody, "/net"), unix.EPERM)
	wantErrno(t, "unmount", r.Unmount(in, root, "/net"), 0)
	wantErrno(t, "unmount again", r.Unmount(in, root, "/net"), unix.EINVAL)
	if r.Lookup(Net, net.Inum()) != nil || r.Lookup(UTS, uts.Inum()) != uts {
		t.Error("the wrong namespace went with its mount")
	}
	check(t, r, held(in))
	in.Put()
	check(t, r, held())
}

// A copy has mounts of its own of the same superblocks and pins, but of mount
// namespaces: two that pinned each other would never die.
func TestCopyMounts(t *testing.T) {
	r := newRegistry(t)
	in := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNS, root))
	later := must(t)(r.Unshare(in, unix.CLONE_NEWNS, root))
	wantErrno(t, "itself", r.Bind(in, root, in.At(Mount), "/m"), unix.EINVAL)
	wantErrno(t, "an older one", r.Bind(later, root, in.At(Mount), "/m"), unix.EINVAL)
	wantErrno(t, "a later one", r.Bind(in, root, later.At(Mount), "/m"), 0)
	wantErrno(t, "another kind", r.Bind(in, root, in.At(UTS), "/u"), 0)
	wantErrno(t, "sysfs", r.Mount(in, root, sysfs, "/sys"), 0)
	copied := must(t)(r.Unshare(in, unix.CLONE_NEWNS, root))
	if got := len(copied.At(Mount).mounts.list); got != 2 {
		t.Errorf("the copy has %d mounts, want 2", got)
	}
	if got := in.At(Net).Superblock(sysfs).Mounts(); got != 2 {
		t.Errorf("M2: the superblock has %d mounts, want 2", got)
	}
	check(t, r, held(in, later, copied))
	in.Put()
	later.Put()
	if r.Lookup(Mount, later.At(Mount).Inum()) != nil {
		t.Error("a mount namespace lives though only a copied pin could keep it")
	}
	check(t, r, held(copied))
	copied.Put()
	check(t, r, held())
}

func TestMountErrors(t *testing.T) {
	r := newRegistry(t)
	first := r.First()
	user := must(t)(r.Unshare(first, unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWNET, nobody))
	for _, c := range []struct {
		name, fstype, target string
		from                 *Set
		by                   Caller
		want                 unix.Errno
	}{
		{"without the capability", MQueue, "/a", first, nobody, unix.EPERM},
		{"the same, no such type", "none", "/a", first, nobody, unix.EPERM},
		{"no such type", "none", "/a", first, root, unix.ENODEV},
		{"the first", MQueue, "/a", first, root, 0},
		{"uppermost already", MQueue, "/a", first, root, unix.EBUSY},
		{"another above it", sysfs, "/a", first, root, 0},
		{"no more uppermost", MQueue, "/a", first, root, 0},
		{"message queues of the host from inside", MQueue, "/a", user, root, unix.EPERM},
		{"its own network namespace's", sysfs, "/a", user, root, 0},
	} {
		wantErrno(t, c.name, r.Mount(c.from, c.by, c.fstype, c.target), c.want)
		check(t, r, held(user))
	}
}

// Thousands of namespaces, each of which only the one before pins, are buried
// one after the other.
func TestLongChainDies(t *testing.T) {
	r := newRegistry(t)
	head := must(t)(r.Unshare(r.First(), unix.CLONE_NEWNS, root))
	for at, n := head.Get(), 0; ; n++ {
		next := must(t)(r.Unshare(at, unix.CLONE_NEWNS, root))
		wantErrno(t, "bind", r.Bind(at, root, next.At(Mount), fmt.Sprint("/", n)), 0)
		at.Put()
		if at = next; n == 10_000 {
			at.Put()
			break
		}
	}
	if got := r.Stats().Namespaces[Mount]; got < 10_000 {
		t.Fatalf("%d mount namespaces, want them all", got)
	}
	head.Put()
	check(t, r, held())
}

// Misuse of references is a panic that names the rule.
func TestMisuse(t *testing.T) {
	r := newRegistry(t)
	s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWUTS, root))
	n := s.At(UTS)
	s.Put()
	for name, misuse := range map[string]func(){
		"Get of a dead namespace": func() { n.Get() },
		"Put of a dead namespace": func() { n.refs.Store(0); n.Put() },
		"Get of a dead set":       func() { s.Get() },
		"Put of a dead set":       func() { s.refs.Store(0); s.Put() },
		"an unmounted superblock": func() { r.superPut(&Superblock{typ: r.mqueue}, new(grave)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", name)
				}
			}()
			misuse()
		}()
	}
}
