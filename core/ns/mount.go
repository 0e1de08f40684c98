package ns

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// mounts is the list of mounts of a mount namespace.
//
//  1. The zero value is empty; not to be copied.
//  2. I1: each mount counts once in its superblock's mounts, or is a reference to
//     the namespace that it pins. I2: a mount that pins a mount namespace pins a
//     later one than that which it is in, so that no two keep each other alive.
//  3. mu guards all. Whoever calls has a reference to the mount namespace, or
//     buries it.
//  4. Nothing is read without mu.
//  5. No reader races.
//  6. A mount lives until Unmount or the death of its mount namespace.
//  7. Blocks for a list that is as long as what is mounted.
//  8. Source: the mount namespaces and namespace files of Linux.
type mounts struct {
	mu   sync.Mutex
	list []mount // in the order in which they were mounted
}

// mount is a file system, or a pinned namespace, at a place.
type mount struct {
	target string
	sb     *Superblock
	pin    *Namespace
}

// Mount mounts a file system of the type in the caller's mount namespace: that of
// its own namespace of the type's kind. Each further mount of a namespace shares
// its superblock (M2). EPERM: the caller has not CAP_SYS_ADMIN over the mount
// namespace, or over the user namespace that the file system would belong to.
// ENODEV: no such type. EBUSY: the superblock belongs to another user namespace,
// or lies uppermost at the target already.
func (r *Registry) Mount(s *Set, by Caller, fstype, target string) error {
	refuse := func(err error) error { return fmt.Errorf("mount %s on %s: %w", fstype, target, err) }
	if !by.capable(s, s.ns[Mount].owner) {
		return refuse(unix.EPERM)
	}
	t, ok := r.types.Load(fstype)
	if !ok {
		return refuse(unix.ENODEV)
	}
	key := s.ns[t.Key]
	user := s.ns[User]
	if !t.ByMounter {
		user = key.userOwner()
	}
	if !by.capable(s, user) {
		return refuse(unix.EPERM)
	}
	sb, err := r.superKeyed(t, key, user)
	if err != nil {
		return refuse(err)
	}
	if !s.ns[Mount].mounts.add(mount{target: target, sb: sb}) {
		var g grave
		r.superPut(sb, &g)
		g.close()
		return refuse(unix.EBUSY)
	}
	return nil
}

// userOwner is the user namespace that file systems of n belong to.
func (n *Namespace) userOwner() *Namespace {
	if n.kind == User {
		return n
	}
	return n.owner
}

// Bind pins namespace n by a mount of its file in the caller's mount namespace.
// The caller has a reference to n. EPERM as for Mount. EINVAL: n is the mount
// namespace of the caller or an older one, which would keep itself alive.
func (r *Registry) Bind(s *Set, by Caller, n *Namespace, target string) error {
	in := s.ns[Mount]
	switch {
	case !by.capable(s, in.owner):
		return fmt.Errorf("bind %v on %s: %w", n, target, unix.EPERM)
	case n.kind == Mount && n.id <= in.id:
		return fmt.Errorf("bind %v on %s: %w", n, target, unix.EINVAL)
	}
	in.mounts.add(mount{target: target, pin: n.Get()})
	return nil
}

// Unmount undoes the last mount on the target in the caller's mount namespace.
// EPERM as for Mount. EINVAL: nothing is mounted there.
func (r *Registry) Unmount(s *Set, by Caller, target string) error {
	if !by.capable(s, s.ns[Mount].owner) {
		return fmt.Errorf("unmount %s: %w", target, unix.EPERM)
	}
	m, ok := s.ns[Mount].mounts.remove(target)
	if !ok {
		return fmt.Errorf("unmount %s: %w", target, unix.EINVAL)
	}
	var g grave
	r.drop(m, &g)
	g.close()
	return nil
}

// drop gives up what a mount holds.
func (r *Registry) drop(m mount, g *grave) {
	if m.pin != nil {
		g.put(m.pin)
		return
	}
	r.superPut(m.sb, g)
}

// add reports false, and does nothing, if the same superblock lies uppermost at
// the target.
func (ms *mounts) add(m mount) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if i := ms.find(m.target); i >= 0 && m.sb != nil && ms.list[i].sb == m.sb {
		return false
	}
	ms.list = append(ms.list, m)
	return true
}

func (ms *mounts) remove(target string) (m mount, ok bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	i := ms.find(target)
	if i < 0 {
		return m, false
	}
	m = ms.list[i]
	ms.list = append(ms.list[:i], ms.list[i+1:]...)
	return m, true
}

// find is the place of the uppermost mount on the target, -1 if there is none.
func (ms *mounts) find(target string) int {
	for i := len(ms.list) - 1; i >= 0; i-- {
		if ms.list[i].target == target {
			return i
		}
	}
	return -1
}

// copyFrom fills the list of a new mount namespace, which nobody else has yet,
// with the mounts of another. Those that pin a mount namespace are left out: the
// new one is later than what they pin (I2).
func (ms *mounts) copyFrom(from *mounts) {
	from.mu.Lock()
	defer from.mu.Unlock()
	for _, m := range from.list {
		switch {
		case m.sb != nil:
			m.sb.mounts.Add(1) // at least 1 before: from has a mount
		case m.pin.kind == Mount:
			continue
		default:
			m.pin.Get()
		}
		ms.list = append(ms.list, m)
	}
}

// dropAll empties the list of a mount namespace that nobody has any more.
func (r *Registry) dropAll(ms *mounts, g *grave) {
	for _, m := range ms.list {
		r.drop(m, g)
	}
	ms.list = nil
}
