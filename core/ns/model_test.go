package ns

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The model counts nothing. What processes, files and mounts lead to is alive, all
// else is forgotten after each operation, as by a garbage collector.

type modelNS struct {
	kind          Kind
	inum          uint32
	level         uint32
	serial        int // in the order of making
	uid           uint32
	owner, parent *modelNS
	mounts        []modelMount // Mount
	queues        *modelSuper  // IPC: its own mount
	maxUTS        int          // User
}

type modelMount struct {
	target string
	super  *modelSuper
	pin    *modelNS
}

type modelSuper struct {
	fstype    string
	key, user *modelNS
}

// modelProc is a process: all namespaces, and those for children.
type modelProc struct {
	at           [Kinds]*modelNS
	pidFC, timFC *modelNS
}

type model struct {
	alive  map[*modelNS]bool
	procs  []*modelProc
	files  []*modelNS
	serial int
}

func newModel() *model {
	m, p := &model{}, &modelProc{}
	p.at[User] = &modelNS{kind: User, inum: kinds[User].inum, maxUTS: 1 << 30}
	for k := range Kind(Kinds) {
		if k != User {
			p.at[k] = &modelNS{kind: k, inum: kinds[k].inum, owner: p.at[User]}
		}
	}
	p.at[IPC].queues = &modelSuper{MQueue, p.at[IPC], p.at[User]}
	p.pidFC, p.timFC = p.at[PID], p.at[Time]
	m.procs = []*modelProc{p}
	m.collect()
	return m
}

// collect forgets what nothing leads to, and clears the keys of what died.
func (m *model) collect() {
	m.alive = map[*modelNS]bool{}
	var reach func(n *modelNS)
	reach = func(n *modelNS) {
		if n == nil || m.alive[n] {
			return
		}
		m.alive[n] = true
		reach(n.owner)
		reach(n.parent)
		for _, mt := range n.mounts {
			reach(mt.pin)
			if mt.super != nil {
				reach(mt.super.user)
			}
		}
	}
	for _, p := range m.procs {
		for _, n := range append(p.at[:], p.pidFC, p.timFC) {
			reach(n)
		}
	}
	for _, n := range m.files {
		reach(n)
	}
	for sb := range m.supers() {
		if sb.key != nil && !m.alive[sb.key] {
			sb.key = nil
		}
	}
}

// supers are all superblocks with their mounts.
func (m *model) supers() map[*modelSuper]int {
	all := map[*modelSuper]int{}
	for n := range m.alive {
		if n.queues != nil {
			all[n.queues]++
		}
		for _, mt := range n.mounts {
			if mt.super != nil {
				all[mt.super]++
			}
		}
	}
	return all
}

func (m *model) inum() uint32 {
	taken := map[uint32]bool{}
	for n := range m.alive {
		taken[n.inum] = true
	}
	inum := uint32(firstDynamic)
	for taken[inum] {
		inum++
	}
	return inum
}

func (n *modelNS) chain(up func(*modelNS) *modelNS) (all []*modelNS) {
	for ; n != nil; n = up(n) {
		all = append(all, n)
	}
	return all
}

func (n *modelNS) owners() []*modelNS  { return n.chain(func(n *modelNS) *modelNS { return n.owner }) }
func (n *modelNS) parents() []*modelNS { return n.chain(func(n *modelNS) *modelNS { return n.parent }) }

// capable: over the own namespace and what is below it with the capability, and
// over what is at or below a direct child that the same user made.
func (p *modelProc) capable(by Caller, over *modelNS) bool {
	up := over.owners()
	i := slices.Index(up, p.at[User])
	return i >= 0 && by.Admin || i > 0 && up[i-1].uid == by.EUID
}

func (m *model) create(p *modelProc, k Kind, from *modelNS, uid uint32) (*modelNS, unix.Errno) {
	n := &modelNS{kind: k, owner: p.at[User], uid: uid, maxUTS: 1 << 30}
	switch k {
	case PID:
		if !slices.Contains(n.owner.owners(), from.owner) {
			return nil, unix.EINVAL
		}
		n.parent, n.level = from, uint32(len(from.parents()))
		if n.level > 32 {
			return nil, unix.ENOSPC
		}
	case User:
		if n.level = uint32(len(from.owners())); n.level > 33 {
			return nil, unix.ENOSPC
		}
	case Mount:
		for _, mt := range from.mounts {
			if mt.pin == nil || mt.pin.kind != Mount {
				n.mounts = append(n.mounts, mt)
			}
		}
	case IPC:
		n.queues = &modelSuper{MQueue, n, n.owner}
	case UTS:
		for _, u := range n.owner.owners() {
			owned := 0
			for other := range m.alive {
				if other.kind == UTS && slices.Contains(other.owner.owners(), u) && other.inum >= firstDynamic {
					owned++
				}
			}
			if owned >= u.maxUTS {
				return nil, unix.ENOSPC
			}
		}
	}
	m.serial++
	n.serial, n.inum = m.serial, m.inum()
	m.alive[n] = true
	return n, 0
}

// new is what clone and unshare have in common.
func (m *model) new(p *modelProc, flags uint64, by Caller) (*modelProc, unix.Errno) {
	c := *p
	if flags&unix.CLONE_NEWUSER != 0 {
		n, errno := m.create(&c, User, c.at[User], by.EUID)
		if errno != 0 {
			return nil, errno
		}
		c.at[User], by.Admin = n, true
	}
	if flags&namespaceFlags&^unix.CLONE_NEWUSER != 0 {
		if !c.capable(by, c.at[User]) {
			return nil, unix.EPERM
		}
		if flags&unix.CLONE_NEWIPC != 0 && flags&unix.CLONE_SYSVSEM != 0 {
			return nil, unix.EINVAL
		}
	}
	for _, step := range []struct {
		k  Kind
		at **modelNS
	}{
		{Mount, &c.at[Mount]}, {UTS, &c.at[UTS]}, {IPC, &c.at[IPC]}, {PID, &c.pidFC},
		{Cgroup, &c.at[Cgroup]}, {Net, &c.at[Net]}, {Time, &c.timFC},
	} {
		if flags&step.k.Flag() == 0 {
			continue
		}
		if step.k == PID && c.pidFC != c.at[PID] {
			return nil, unix.EINVAL
		}
		n, errno := m.create(&c, step.k, *step.at, by.EUID)
		if errno != 0 {
			return nil, errno
		}
		*step.at = n
	}
	return &c, 0
}

func (m *model) clone(p *modelProc, flags uint64, by Caller) (*modelProc, unix.Errno) {
	has := func(f uint64) bool { return flags&f != 0 }
	if has(unix.CLONE_FS) && has(unix.CLONE_NEWNS|unix.CLONE_NEWUSER) ||
		has(unix.CLONE_THREAD) && (has(unix.CLONE_NEWUSER|unix.CLONE_NEWPID) || p.pidFC != p.at[PID]) {
		return nil, unix.EINVAL
	}
	c, errno := m.new(p, flags, by)
	if errno == 0 {
		c.at[PID] = c.pidFC
		if !has(unix.CLONE_VM) {
			c.at[Time] = c.timFC
		}
	}
	return c, errno
}

func (m *model) unshare(p *modelProc, flags uint64, by Caller) (*modelProc, unix.Errno) {
	const alone = unix.CLONE_NEWUSER | unix.CLONE_THREAD | unix.CLONE_VM
	if by.Threaded && flags&alone != 0 {
		return nil, unix.EINVAL
	}
	return m.new(p, flags&namespaceFlags, by)
}

func (m *model) setns(p *modelProc, n *modelNS, by Caller) (*modelProc, unix.Errno) {
	own := p.capable(by, p.at[User])
	c := *p
	switch n.kind {
	case User:
		if n == p.at[User] || by.Threaded || by.SharesFS {
			return nil, unix.EINVAL
		}
		if !p.capable(by, n) {
			return nil, unix.EPERM
		}
		c.at[User] = n
		return &c, 0
	case Time:
		if by.Threaded {
			return nil, unix.EUSERS
		}
		c.timFC = n
	}
	if !own || !p.capable(by, n.owner) {
		return nil, unix.EPERM
	}
	switch {
	case n.kind == Mount && by.SharesFS:
		return nil, unix.EINVAL
	case n.kind == PID:
		if !slices.Contains(n.parents(), p.at[PID]) {
			return nil, unix.EINVAL
		}
		c.pidFC = n
	default:
		c.at[n.kind] = n
	}
	return &c, 0
}

func (m *model) mount(p *modelProc, by Caller, fstype, target string) unix.Errno {
	mnt := p.at[Mount]
	key := p.at[Net]
	if fstype == MQueue {
		key = p.at[IPC]
	}
	user := key.owner
	if fstype == shared {
		user = p.at[User]
	}
	if !p.capable(by, mnt.owner) || !p.capable(by, user) {
		return unix.EPERM
	}
	var super *modelSuper
	for sb := range m.supers() {
		if sb.fstype == fstype && sb.key == key {
			super = sb
		}
	}
	if super == nil {
		super = &modelSuper{fstype, key, user}
	}
	if super.user != user {
		return unix.EBUSY
	}
	if i := mnt.top(target); i >= 0 && mnt.mounts[i].super == super {
		return unix.EBUSY
	}
	mnt.mounts = append(slices.Clone(mnt.mounts), modelMount{target: target, super: super})
	return 0
}

func (m *model) bind(p *modelProc, by Caller, n *modelNS, target string) unix.Errno {
	mnt := p.at[Mount]
	switch {
	case !p.capable(by, mnt.owner):
		return unix.EPERM
	case n.kind == Mount && n.serial <= mnt.serial:
		return unix.EINVAL
	}
	mnt.mounts = append(slices.Clone(mnt.mounts), modelMount{target: target, pin: n})
	return 0
}

func (m *model) unmount(p *modelProc, by Caller, target string) unix.Errno {
	mnt := p.at[Mount]
	if !p.capable(by, mnt.owner) {
		return unix.EPERM
	}
	i := mnt.top(target)
	if i < 0 {
		return unix.EINVAL
	}
	mnt.mounts = slices.Delete(slices.Clone(mnt.mounts), i, i+1)
	return 0
}

func (n *modelNS) top(target string) int {
	for i := len(n.mounts) - 1; i >= 0; i-- {
		if n.mounts[i].target == target {
			return i
		}
	}
	return -1
}

// TestModelRegistry runs scripts at random, each way of searching in turn.
func TestModelRegistry(t *testing.T) {
	scripts := 240
	if testing.Short() {
		scripts = 60
	}
	r := rand.New(rand.NewPCG(1, 2))
	met := map[unix.Errno]int{}
	for range scripts {
		b := make([]byte, 100+r.IntN(1500))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		runScript(t, b, met)
	}
	for _, errno := range []unix.Errno{0, unix.EINVAL, unix.EPERM, unix.EBUSY, unix.ENOSPC, unix.EUSERS} {
		if met[errno] < scripts/6 {
			t.Errorf("the scripts met %v %d times, want %d at least", errno, met[errno], scripts/6)
		}
	}
	t.Logf("%v", met)
}

func FuzzRegistry(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 9, 0, 1, 2, 0, 12, 0, 1, 1, 0, 5, 0})
	f.Fuzz(func(t *testing.T, b []byte) { runScript(t, b, map[unix.Errno]int{}) })
}
