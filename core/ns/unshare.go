package ns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What unshare(2) takes beside the namespaces.
const unshareFlags = unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM |
	unix.CLONE_THREAD | unix.CLONE_VM

// Unshare returns the set that the caller is to take in place of s, with a
// reference; s keeps its own. New PID and time namespaces are for children only.
// After CLONE_NEWUSER the caller has all capabilities in the new user namespace.
//
// EINVAL: an unknown flag; flags that a task of a thread group with others cannot
// unshare (CLONE_NEWUSER among them); CLONE_NEWPID when the namespace for children
// is not the caller's own. Other errors are those of Clone.
func (r *Registry) Unshare(s *Set, flags uint64, by Caller) (*Set, error) {
	refuse := func(err error) (*Set, error) {
		return nil, fmt.Errorf("unshare with flags %#x: %w", flags, err)
	}
	alone := flags & (unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_VM | unix.CLONE_NEWUSER)
	switch {
	case flags&^(namespaceFlags|unshareFlags) != 0, alone != 0 && by.Threaded:
		return refuse(unix.EINVAL)
	case flags&namespaceFlags == 0:
		return s.Get(), nil
	}
	n, err := r.newSet(s, flags&namespaceFlags, by)
	if err != nil {
		return refuse(err)
	}
	return n, nil
}
