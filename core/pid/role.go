package pid

import (
	"fmt"
	"sync/atomic"

	"github.com/kpidd/kpidd/arch"
)

// Role is what a task uses a pid object as. Its users are guarded by the caller's
// task-list lock.
type Role uint8

// The roles, as the kernel has them.
const (
	PID  Role = iota // the task's own
	TGID             // of the thread group that it leads
	PGID             // of its process group
	SID              // of its session
)

// The words of object.users: tasks of the process group in the low half, and above
// them those of the session, and who is PID and TGID.
const (
	groupUser  = 1
	groupMask  = 1<<32 - 1
	sidUser    = 1 << 32
	sidMask    = (1<<29 - 1) << 32
	retiredBit = 1 << 61
	tgidUser   = 1 << 62
	pidUser    = 1 << 63
)

// Attach makes a task a user of the object in slot. A second task in role PID or
// TGID, and TGID without PID, are bugs of the caller (I4). A leader's number must
// bear the tag: M1.6 is checked, and counted.
func (s *Space) Attach(slot uint32, r Role) {
	o := s.objects.At(slot)
	users := atomic.LoadUint64(&o.users)
	switch {
	case o.handle() == 0 || o.freed() || users&retiredBit != 0:
		panic(fmt.Sprintf("pid: I1: attach to slot %d, which is no pid object", slot))
	case r == PGID:
		users += groupUser
	case r == SID:
		users += sidUser
	case r == PID && users&pidUser == 0:
		users |= pidUser
	case r == TGID && users&(pidUser|tgidUser) == pidUser:
		users |= tgidUser
		for l := s.namespaceOf(o); l != nil; l = l.parent {
			l.Verify(s.numberAt(o, l.level), true)
		}
	default:
		panic(fmt.Sprintf("pid: I4: attach of a second task in role %d to slot %d", r, slot))
	}
	arch.StoreRelease64(&o.users, users)
}

// Detach takes a user away; last tells that it was the last of any role, so that
// the caller, and nobody else, frees the object (M5.3).
func (s *Space) Detach(slot uint32, r Role) (last bool) {
	o := s.objects.At(slot)
	users := atomic.LoadUint64(&o.users)
	switch {
	case users&retiredBit == 0 && r == PGID && users&groupMask != 0:
		users -= groupUser
	case r == SID && users&sidMask != 0:
		users -= sidUser
	case r == PID && users&(pidUser|tgidUser) == pidUser:
		users &^= pidUser
	case r == TGID && users&tgidUser != 0:
		users &^= tgidUser
	default:
		panic(fmt.Sprintf("pid: I4: detach from slot %d, which nobody uses in role %d", slot, r))
	}
	arch.StoreRelease64(&o.users, users)
	return users == 0
}

// Change has a task use object to in place of from: it is detached, attached, and
// only then does the caller free from, if last (M5.5).
func (s *Space) Change(from, to uint32, r Role) (last bool) {
	if from == to {
		return false
	}
	last = s.Detach(from, r)
	s.Attach(to, r)
	return last
}

// Users is how many tasks use the object in a role.
func (s *Space) Users(slot uint32, r Role) uint32 {
	users := atomic.LoadUint64(&s.objects.At(slot).users)
	switch {
	case users&retiredBit != 0:
		return 0
	case r == PGID:
		return uint32(users)
	case r == SID:
		return uint32(users & sidMask >> 32)
	case r == PID:
		return uint32(users >> 63)
	default:
		return uint32(users >> 62 & 1)
	}
}
