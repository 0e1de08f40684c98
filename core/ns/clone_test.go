package ns

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Each flag makes its own kind new, for the caller or for its children, and
// shares all others.
func TestCloneAndUnshareEachKind(t *testing.T) {
	for k := range Kind(Kinds) {
		t.Run(k.String(), func(t *testing.T) {
			r := newRegistry(t)
			first := r.First()
			child := must(t)(r.Clone(first, k.Flag(), root))
			self := must(t)(r.Unshare(first, k.Flag(), root))
			for at := range Kind(Kinds) {
				later := at == PID || at == Time
				if got := child.At(at) != first.At(at); got != (at == k) {
					t.Errorf("clone: %v is new: %v", at, got)
				}
				if got := self.At(at) != first.At(at); got != (at == k && !later) {
					t.Errorf("unshare: %v is new: %v", at, got)
				}
				if got := self.ForChildren(at) != first.At(at); got != (at == k) {
					t.Errorf("unshare: %v for children is new: %v", at, got)
				}
			}
			n := child.At(k)
			if n.Kind() != k || n.Owner() != child.At(User) && k != User || k == User && n.Owner() != first.At(User) {
				t.Errorf("got %v owned by %v", n, n.Owner())
			}
			if got := r.Get(k, n.Inum()); got != n {
				t.Errorf("lookup of %v: got %v", n, got)
			} else {
				got.Put()
			}
			grandchild := must(t)(r.Clone(self, 0, nobody))
			if grandchild.At(k) != self.ForChildren(k) {
				t.Errorf("a child has %v, want %v", grandchild.At(k), self.ForChildren(k))
			}
			check(t, r, held(child, self, grandchild))
			for _, s := range []*Set{child, self, grandchild} {
				s.Put()
			}
			check(t, r, held())
		})
	}
}

// New namespaces beside a new user namespace belong to it.
func TestNewUserOwns(t *testing.T) {
	r := newRegistry(t)
	s := must(t)(r.Clone(r.First(), namespaceFlags, nobody))
	for k := range Kind(Kinds) {
		if n := s.At(k); k != User && n.Owner() != s.At(User) {
			t.Errorf("%v belongs to %v, want %v", n, n.Owner(), s.At(User))
		}
	}
	if sb := s.At(IPC).Superblock(MQueue); sb.User() != s.At(User) {
		t.Errorf("the message queues belong to %v, want %v", sb.User(), s.At(User))
	}
	if p := s.At(PID).Parent(); p != r.First().At(PID) {
		t.Errorf("the parent of the PID namespace is %v", p)
	}
	s.Put()
	check(t, r, held())
}

func TestCloneErrors(t *testing.T) {
	r := newRegistry(t)
	plain := must(t)(r.Clone(r.First(), 0, root))
	pidUnshared := must(t)(r.Unshare(plain, unix.CLONE_NEWPID, root))
	timeUnshared := must(t)(r.Unshare(plain, unix.CLONE_NEWTIME, root))
	for _, c := range []struct {
		name  string
		from  *Set
		flags uint64
		by    Caller
		want  unix.Errno
	}{
		{"nothing", plain, 0, nobody, 0},
		{"without the capability", plain, unix.CLONE_NEWUTS, nobody, unix.EPERM},
		{"in a new user namespace", plain, unix.CLONE_NEWUTS | unix.CLONE_NEWUSER, nobody, 0},
		{"new mounts, shared root", plain, unix.CLONE_NEWNS | unix.CLONE_FS, root, unix.EINVAL},
		{"new user, shared root", plain, unix.CLONE_NEWUSER | unix.CLONE_FS, root, unix.EINVAL},
		{"new IPC, shared semaphore undos", plain, unix.CLONE_NEWIPC | unix.CLONE_SYSVSEM, root, unix.EINVAL},
		{"the same without the capability", plain, unix.CLONE_NEWIPC | unix.CLONE_SYSVSEM, nobody, unix.EPERM},
		{"the same, all undone", plain, unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_SYSVSEM, root, unix.EINVAL},
		{"a thread", plain, unix.CLONE_THREAD | unix.CLONE_VM, nobody, 0},
		{"a thread in a new user namespace", plain, unix.CLONE_THREAD | unix.CLONE_NEWUSER, root, unix.EINVAL},
		{"a thread in a new PID namespace", plain, unix.CLONE_THREAD | unix.CLONE_NEWPID, root, unix.EINVAL},
		{"a thread in another PID namespace", pidUnshared, unix.CLONE_THREAD | unix.CLONE_VM, root, unix.EINVAL},
		{"two PID namespaces at once", pidUnshared, unix.CLONE_NEWPID, root, unix.EINVAL},
		{"the same, mounts undone", pidUnshared, unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC, root, unix.EINVAL},
		{"a child there", pidUnshared, 0, nobody, 0},
		{"a thread under another time for children", timeUnshared, unix.CLONE_THREAD | unix.CLONE_VM, nobody, 0},
	} {
		s, err := r.Clone(c.from, c.flags, c.by)
		wantErrno(t, c.name, err, c.want)
		if err == nil {
			s.Put()
		}
		check(t, r, held(plain, pidUnshared, timeUnshared))
	}
}

// A child with memory of its own lives by the time namespace for children, one
// that shares its parent's by the parent's.
func TestCloneTime(t *testing.T) {
	r := newRegistry(t)
	s := must(t)(r.Unshare(r.First(), unix.CLONE_NEWTIME, root))
	vfork := must(t)(r.Clone(s, unix.CLONE_VM|unix.CLONE_VFORK, root))
	if vfork != s {
		t.Error("a child that shares the memory got a set of its own")
	}
	vforkNet := must(t)(r.Clone(s, unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_NEWNET, root))
	if vforkNet.At(Time) != s.At(Time) || vforkNet.ForChildren(Time) != s.ForChildren(Time) {
		t.Errorf("a child that shares the memory: got %v, want %v", vforkNet, s)
	}
	fork := must(t)(r.Clone(s, 0, root))
	if fork.At(Time) != s.ForChildren(Time) {
		t.Errorf("a child: got %v, want %v", fork.At(Time), s.ForChildren(Time))
	}
	check(t, r, held(s, vfork, vforkNet, fork))
}

func TestUnshareErrors(t *testing.T) {
	r := newRegistry(t)
	plain := r.First()
	pidUnshared := must(t)(r.Unshare(plain, unix.CLONE_NEWPID, root))
	threaded := Caller{Admin: true, Threaded: true}
	for _, c := range []struct {
		name  string
		from  *Set
		flags uint64
		by    Caller
		want  unix.Errno
	}{
		{"nothing", plain, 0, nobody, 0},
		{"files", plain, unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SYSVSEM, nobody, 0},
		{"an unknown flag", plain, unix.CLONE_PARENT, root, unix.EINVAL},
		{"without the capability", plain, unix.CLONE_NEWNET, nobody, unix.EPERM},
		{"a user namespace", plain, unix.CLONE_NEWUSER, nobody, 0},
		{"a user namespace, with threads", plain, unix.CLONE_NEWUSER, threaded, unix.EINVAL},
		{"memory, with threads", plain, unix.CLONE_VM, threaded, unix.EINVAL},
		{"the thread group, with threads", plain, unix.CLONE_THREAD, threaded, unix.EINVAL},
		{"signal handlers, with threads", plain, unix.CLONE_SIGHAND, threaded, unix.EINVAL},
		{"the thread group, alone", plain, unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_VM, nobody, 0},
		{"another kind, with threads", plain, unix.CLONE_NEWUTS, threaded, 0},
		{"IPC and its semaphores", plain, unix.CLONE_NEWIPC | unix.CLONE_SYSVSEM, root, 0},
		{"a second PID namespace", pidUnshared, unix.CLONE_NEWPID, root, unix.EINVAL},
		{"a second time namespace", must(t)(r.Unshare(pidUnshared, unix.CLONE_NEWTIME, root)), unix.CLONE_NEWTIME, root, 0},
	} {
		s, err := r.Unshare(c.from, c.flags, c.by)
		wantErrno(t, c.name, err, c.want)
		if err == nil {
			s.Put()
		}
	}
}

// A PID namespace below one that belongs to another branch of user namespaces.
func TestClonePIDOfAnotherBranch(t *testing.T) {
	r := newRegistry(t)
	a := must(t)(r.Clone(r.First(), unix.CLONE_NEWUSER|unix.CLONE_NEWPID, root))
	b := must(t)(r.Clone(r.First(), unix.CLONE_NEWUSER, root))
	// A process of a's PID namespace in b's user namespace.
	s := a.copySet()
	s.replace(&s.ns[User], b.At(User).Get())
	_, err := r.Clone(s, unix.CLONE_NEWPID, root)
	wantErrno(t, "another branch", err, unix.EINVAL)
	check(t, r, held(a, b, s))
}
