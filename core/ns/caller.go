package ns

// Caller is what the kernel asks of the task that makes a call, beside its Set.
type Caller struct {
	EUID     uint32 // its effective user id, as the first user namespace counts
	Admin    bool   // it has CAP_SYS_ADMIN in its user namespace
	Threaded bool   // its thread group has other tasks
	SharesFS bool   // its root and working directory are shared with another task
}

// capable tells whether the caller has CAP_SYS_ADMIN over a user namespace: it has
// the capability in its own and that is this one or lies above it, or its user
// has made, in its own namespace, this one or one above it.
func (by Caller) capable(s *Set, over *Namespace) bool {
	own := s.ns[User]
	for u := over; ; u = u.owner {
		switch {
		case u == own:
			return by.Admin
		case u.level <= own.level:
			return false
		case u.owner == own && u.uid == by.EUID:
			return true
		}
	}
}
