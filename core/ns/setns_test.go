package ns

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSetnsEachKind(t *testing.T) {
	for k := range Kind(Kinds) {
		t.Run(k.String(), func(t *testing.T) {
			r := newRegistry(t)
			other := must(t)(r.Clone(r.First(), k.Flag(), root))
			target := other.At(k)
			wrong := IPC.Flag()
			if k == IPC {
				wrong = UTS.Flag()
			}
			_, err := r.Setns(r.First(), target, wrong, root)
			wantErrno(t, "another kind", err, unix.EINVAL)
			_, err = r.Setns(r.First(), target, 0, nobody)
			wantErrno(t, "without the capability", err, unix.EPERM)
			for _, nstype := range []uint64{0, k.Flag()} {
				s := must(t)(r.Setns(r.First(), target, nstype, root))
				for at := range Kind(Kinds) {
					want, children := r.First().At(at), r.First().At(at)
					if at == k {
						children = target
						if k != PID {
							want = target
						}
					}
					if s.At(at) != want || s.ForChildren(at) != children {
						t.Errorf("%v: got %v, for children %v, want %v and %v", at, s.At(at), s.ForChildren(at), want, children)
					}
				}
				check(t, r, held(other, s))
				s.Put()
			}
			other.Put()
			check(t, r, held())
		})
	}
}

func TestSetnsErrors(t *testing.T) {
	r := newRegistry(t)
	first := r.First()
	pid := must(t)(r.Clone(first, unix.CLONE_NEWPID, root))
	deep := must(t)(r.Clone(pid, unix.CLONE_NEWPID, root))
	sibling := must(t)(r.Clone(first, unix.CLONE_NEWPID, root))
	user := must(t)(r.Clone(first, namespaceFlags, nobody))
	threaded, sharing := Caller{Admin: true, Threaded: true}, Caller{Admin: true, SharesFS: true}
	for _, c := range []struct {
		name   string
		from   *Set
		target *Namespace
		by     Caller
		want   unix.Errno
	}{
		{"a PID namespace below", first, deep.At(PID), root, 0},
		{"its own PID namespace", pid, pid.At(PID), root, 0},
		{"a PID namespace above", deep, pid.At(PID), root, unix.EINVAL},
		{"a PID namespace beside", pid, sibling.At(PID), root, unix.EINVAL},
		{"a PID namespace beside, lower", sibling, deep.At(PID), root, unix.EINVAL},
		{"its own user namespace", first, first.At(User), root, unix.EINVAL},
		{"a user namespace below", first, user.At(User), root, 0},
		{"a user namespace below, as its maker", first, user.At(User), nobody, 0},
		{"a user namespace below, as somebody", first, user.At(User), Caller{EUID: 1}, unix.EPERM},
		{"a user namespace above", user, first.At(User), root, unix.EPERM},
		{"a user namespace, with threads", first, user.At(User), threaded, unix.EINVAL},
		{"a user namespace, with a shared root", first, user.At(User), sharing, unix.EINVAL},
		{"mounts, with a shared root", first, user.At(Mount), sharing, unix.EINVAL},
		{"mounts, with threads", first, user.At(Mount), threaded, 0},
		{"a time namespace, with threads", first, user.At(Time), threaded, unix.EUSERS},
		{"another user's, as its maker, without the capability here", first, user.At(IPC), nobody, unix.EPERM},
		{"the host's from inside", user, first.At(IPC), root, unix.EPERM},
		{"its own", user, user.At(IPC), root, 0},
	} {
		s, err := r.Setns(c.from, c.target, 0, c.by)
		wantErrno(t, c.name, err, c.want)
		if err == nil {
			s.Put()
		}
		check(t, r, held(pid, deep, sibling, user))
	}
}
