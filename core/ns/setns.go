package ns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Setns returns the set that the caller is to take in place of s, with a
// reference, in which target has the place of its kind; s keeps its own. The
// caller has a reference to target. nstype is 0 or the CLONE_NEW… flag that target
// must be of. A PID namespace is entered by children only. After entering a user
// namespace the caller has all capabilities there.
//
// EINVAL: another kind; a PID namespace that is not the caller's own or below it;
// the caller's own user namespace, or any from a task of a thread group with
// others; a mount or user namespace from one that shares its root directory.
// EUSERS: a time namespace from a task of such a group. EPERM: no CAP_SYS_ADMIN
// over target or in the caller's own user namespace.
func (r *Registry) Setns(s *Set, target *Namespace, nstype uint64, by Caller) (*Set, error) {
	err := error(unix.EINVAL)
	if nstype == 0 || nstype == target.kind.Flag() {
		err = s.mayEnter(target, by)
	}
	if err != nil {
		return nil, fmt.Errorf("setns to %v: %w", target, err)
	}
	n := s.copySet()
	n.replace(n.member(target.kind), target.Get())
	if target.kind == Time {
		n.replace(&n.ns[Time], target.Get())
	}
	return n, nil
}

func (s *Set) mayEnter(target *Namespace, by Caller) error {
	capable := by.capable(s, target.userOwner()) && (target.kind == User || by.capable(s, s.ns[User]))
	switch target.kind {
	case User:
		if target == s.ns[User] || by.Threaded || by.SharesFS {
			return unix.EINVAL
		}
	case Time:
		if by.Threaded {
			return unix.EUSERS
		}
	}
	switch {
	case !capable:
		return unix.EPERM
	case target.kind == PID && !target.below(s.ns[PID]), target.kind == Mount && by.SharesFS:
		return unix.EINVAL
	}
	return nil
}
