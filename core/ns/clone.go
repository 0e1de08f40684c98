package ns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Clone returns the set of a child, with a reference for it: the caller's own if
// nothing differs, else one with a new namespace for each CLONE_NEW… flag. Of the
// other flags those are looked at that forbid or change something here: CLONE_FS,
// CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM. A child in a new user namespace has all
// capabilities there.
//
// EINVAL: flags that exclude each other; a thread in other namespaces than its
// group; CLONE_NEWPID after the namespace for children was changed. EPERM: no
// CAP_SYS_ADMIN. ENOSPC: too deep, too many, or no number. Other errors are those
// of Hooks.MakePID. On an error nothing has changed.
func (r *Registry) Clone(s *Set, flags uint64, by Caller) (*Set, error) {
	if err := s.mayClone(flags); err != nil {
		return nil, fmt.Errorf("clone with flags %#x: %w", flags, err)
	}
	ownTime := flags&unix.CLONE_VM != 0 // shares the memory, so also its clocks
	if flags&namespaceFlags == 0 && s.ns[PID] == s.pidForChildren &&
		(ownTime || s.ns[Time] == s.timeForChildren) {
		return s.Get(), nil
	}
	child, err := r.newSet(s, flags, by)
	if err != nil {
		return nil, fmt.Errorf("clone with flags %#x: %w", flags, err)
	}
	child.replace(&child.ns[PID], child.pidForChildren.Get())
	if !ownTime {
		child.replace(&child.ns[Time], child.timeForChildren.Get())
	}
	return child, nil
}

// mayClone refuses what no capability helps with.
func (s *Set) mayClone(flags uint64) error {
	both := func(mask uint64) bool { return flags&mask == mask }
	switch {
	case both(unix.CLONE_NEWNS | unix.CLONE_FS), both(unix.CLONE_NEWUSER | unix.CLONE_FS):
		return unix.EINVAL
	case flags&unix.CLONE_THREAD == 0:
		return nil
	case flags&(unix.CLONE_NEWUSER|unix.CLONE_NEWPID) != 0, s.ns[PID] != s.pidForChildren:
		return unix.EINVAL
	}
	return nil
}

// newSet returns a copy of s in which each kind of flags is new. New PID and time
// namespaces are those for children. Either all are made or none is.
func (r *Registry) newSet(s *Set, flags uint64, by Caller) (*Set, error) {
	n := s.copySet()
	if err := r.fill(n, flags, by); err != nil {
		n.Put()
		return nil, err
	}
	return n, nil
}

// fill makes the new members of a set, in the order of the kernel.
func (r *Registry) fill(s *Set, flags uint64, by Caller) error {
	if flags&unix.CLONE_NEWUSER != 0 {
		n, err := r.create(User, s.ns[User], s.ns[User], by.EUID)
		if err != nil {
			return err
		}
		s.replace(&s.ns[User], n)
		by.Admin = true
	}
	switch {
	case flags&(namespaceFlags&^unix.CLONE_NEWUSER) == 0:
		return nil
	case !by.capable(s, s.ns[User]):
		return unix.EPERM
	case flags&unix.CLONE_NEWIPC != 0 && flags&unix.CLONE_SYSVSEM != 0:
		return unix.EINVAL // semaphores of the old namespace would be undone in the new
	}
	for _, k := range [...]Kind{Mount, UTS, IPC, PID, Cgroup, Net, Time} {
		if flags&kinds[k].flag == 0 {
			continue
		}
		if k == PID && s.ns[PID] != s.pidForChildren {
			return unix.EINVAL
		}
		member := s.member(k)
		n, err := r.create(k, *member, s.ns[User], by.EUID)
		if err != nil {
			return err
		}
		s.replace(member, n)
	}
	return nil
}

// member is the place of what a new namespace of the kind replaces.
func (s *Set) member(k Kind) **Namespace {
	switch k {
	case PID:
		return &s.pidForChildren
	case Time:
		return &s.timeForChildren
	}
	return &s.ns[k]
}
