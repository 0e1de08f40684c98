package task

import (
	"slices"

	"golang.org/x/sys/unix"
)

// naive is a kernel written as simply as can be: maps, slices, and a look at
// everything for each question. The engine is compared with it.
type naive struct {
	tasks   []*naiveTask // that have a number, in order of birth
	objects []*naiveObject
	root    *naiveNS
}

type naiveNS struct {
	parent *naiveNS
	level  int
	cursor uint32
	max    uint32
	reaper *naiveTask
	dead   bool
}

// naiveObject is a pid object: numbers by level.
type naiveObject struct {
	ns  *naiveNS
	nrs []uint32
}

type naiveTask struct {
	obj       *naiveObject
	kids      *naiveNS
	leader    *naiveTask
	threads   []*naiveTask // leader: the others, alive
	parent    *naiveTask
	children  []*naiveTask
	pgid, sid *naiveObject
	exited    bool // a leader that has exited
	zombie    bool // and all its threads
	zapping   bool // a reaper that has ended, but for its namespace
	status    unix.WaitStatus
	leads     bool
	image     bool
	subreaper bool
	ignores   bool
	noWait    bool
	waitsFor  *naiveTask // child of vfork
	euid      uint32
	usage     uint64 // switches
	comm      byte
}

func (o *naiveObject) in(ns *naiveNS) uint32 {
	if o == nil || ns.level > o.ns.level {
		return 0
	}
	at := o.ns
	for at.level > ns.level {
		at = at.parent
	}
	if at != ns {
		return 0
	}
	return o.nrs[ns.level]
}

func (o *naiveObject) root() uint32 {
	if o == nil {
		return 0
	}
	return o.nrs[0]
}

func newNaive() *naive {
	k := &naive{root: &naiveNS{max: 1 << 22}}
	obj, _ := k.alloc(k.root, nil, true)
	t := &naiveTask{obj: obj, kids: k.root}
	t.leader = t
	k.root.reaper = t
	k.tasks = append(k.tasks, t)
	return k
}

func (k *naive) find(tid uint32) *naiveTask {
	for _, t := range k.tasks {
		if t.obj.nrs[0] == tid {
			return t
		}
	}
	return nil
}

func (k *naive) findIn(ns *naiveNS, nr uint32) *naiveTask {
	for _, t := range k.tasks {
		if nr != 0 && t.obj.in(ns) == nr {
			return t
		}
	}
	return nil
}

func (k *naive) objectIn(ns *naiveNS, nr uint32) *naiveObject {
	for _, o := range k.objects {
		if nr != 0 && o.in(ns) == nr {
			return o
		}
	}
	return nil
}

// prune forgets the objects that nobody uses.
func (k *naive) prune() {
	k.objects = slices.DeleteFunc(k.objects, func(o *naiveObject) bool {
		for _, t := range k.tasks {
			if t.obj == o || t.leader == t && (t.pgid == o || t.sid == o) {
				return false
			}
		}
		return true
	})
}

func (k *naive) alloc(ns *naiveNS, want []uint32, root bool) (*naiveObject, error) {
	if len(want) > ns.level+1 {
		return nil, unix.EINVAL
	}
	nrs := make([]uint32, ns.level+1)
	for at := ns; at != nil; at = at.parent {
		if i := ns.level - at.level; i < len(want) {
			switch w := want[i]; {
			case w < 1 || w >= at.max, w != 1 && at.reaper == nil && !at.dead:
				return nil, unix.EINVAL
			case !root:
				return nil, unix.EPERM
			case k.objectIn(at, w) != nil:
				return nil, unix.EEXIST
			}
			nrs[at.level] = want[i]
			continue
		}
		nr, ok := k.free(at)
		if !ok {
			return nil, unix.EAGAIN
		}
		nrs[at.level] = nr
		if at != ns || at.reaper != nil || len(k.users(at)) > 0 {
			at.cursor = nr + 1
		}
	}
	if ns.dead {
		return nil, unix.ENOMEM
	}
	for at := ns; at != nil; at = at.parent {
		if i := ns.level - at.level; i >= len(want) {
			at.cursor = nrs[at.level] + 1
		}
	}
	o := &naiveObject{ns, nrs}
	k.objects = append(k.objects, o)
	return o, nil
}

func (k *naive) users(ns *naiveNS) (in []*naiveObject) {
	for _, o := range k.objects {
		if o.in(ns) != 0 {
			in = append(in, o)
		}
	}
	return in
}

// free finds the next number in the round.
func (k *naive) free(ns *naiveNS) (uint32, bool) {
	low := uint32(1)
	if ns.cursor > 300 {
		low = 300
	}
	from := max(low, ns.cursor)
	for _, r := range [][2]uint32{{from, ns.max}, {low, from}} {
		for nr := r[0]; nr < r[1]; nr++ {
			if k.objectIn(ns, nr) == nil {
				return nr, true
			}
		}
	}
	return 0, false
}

// able returns a task that can ask for something.
func (k *naive) able(tid uint32) (*naiveTask, error) {
	t := k.find(tid)
	switch {
	case t == nil || t.exited || t.leader.zapping:
		return nil, unix.ESRCH
	case t.waitsFor != nil:
		return nil, unix.EBUSY
	}
	return t, nil
}

func (k *naive) clone(tid uint32, flags uint64, want []uint32) (uint32, error) {
	t := k.find(tid)
	if t == nil {
		return 0, unix.ESRCH
	}
	thread, ns := flags&unix.CLONE_THREAD != 0, t.kids
	switch {
	case flags&unix.CLONE_PARENT != 0 && t.leader == t.obj.ns.reaper,
		thread && (flags&unix.CLONE_NEWPID != 0 || t.kids != t.obj.ns):
		return 0, unix.EINVAL
	case flags&unix.CLONE_NEWPID != 0:
		switch {
		case t.euid != 0:
			return 0, unix.EPERM
		case t.kids != t.obj.ns:
			return 0, unix.EINVAL
		case t.obj.ns.level == 32:
			return 0, unix.ENOSPC
		}
		ns = &naiveNS{parent: t.obj.ns, level: t.obj.ns.level + 1, max: t.obj.ns.max}
	}
	obj, err := k.alloc(ns, want, t.euid == 0)
	if err != nil {
		return 0, err
	}
	if _, err := k.able(tid); err != nil {
		k.prune()
		if len(k.users(ns)) == 0 && ns.reaper == nil {
			ns.dead = true
		}
		return 0, err
	}
	c := &naiveTask{obj: obj, kids: obj.ns, euid: t.euid, comm: t.comm}
	k.tasks = append(k.tasks, c)
	if thread {
		c.leader = t.leader
		t.leader.threads = append(t.leader.threads, c)
	} else {
		c.leader = c
		c.pgid, c.sid = t.leader.pgid, t.leader.sid
		c.ignores, c.noWait = t.leader.ignores, t.leader.noWait
		c.parent = t.leader
		if flags&unix.CLONE_PARENT != 0 {
			c.parent = t.leader.parent
		}
		if c.parent != nil {
			c.parent.children = append(c.parent.children, c)
		}
		if ns.reaper == nil && obj.in(ns) == 1 {
			ns.reaper = c
		}
	}
	if flags&unix.CLONE_VFORK != 0 {
		t.waitsFor = c
	}
	return obj.nrs[0], nil
}

func (k *naive) resume(child *naiveTask) {
	for _, t := range k.tasks {
		if t.waitsFor == child {
			t.waitsFor = nil
		}
	}
}

func (k *naive) drop(t *naiveTask) {
	k.tasks = slices.DeleteFunc(k.tasks, func(o *naiveTask) bool { return o == t })
}

// exit ends one task.
func (k *naive) exit(t *naiveTask) {
	k.resume(t)
	l := t.leader
	t.kids = t.obj.ns
	if ns := l.obj.ns; ns.reaper == l && k.last(t) {
		k.zap(ns)
		if k.peopled(ns) {
			l.zapping = true
			return
		}
	}
	k.end(t)
}

// last tells whether a task is the only one of its group that has not exited.
func (k *naive) last(t *naiveTask) bool {
	l := t.leader
	return t == l && len(l.threads) == 0 || t != l && l.exited && len(l.threads) == 1
}

// peopled tells whether a namespace has another task than its reaper's.
func (k *naive) peopled(ns *naiveNS) bool {
	return slices.ContainsFunc(k.tasks, func(t *naiveTask) bool { return t.obj.in(ns) != 0 && t.leader != ns.reaper })
}

// end is what is left of exit once nobody is left to be waited for.
func (k *naive) end(t *naiveTask) {
	l := t.leader
	t.exited = true
	if t != l {
		l.threads = slices.DeleteFunc(l.threads, func(o *naiveTask) bool { return o == t })
		l.usage += t.usage
		k.drop(t)
	}
	if !l.exited || len(l.threads) > 0 {
		return
	}
	l.zombie = true
	to := k.heir(l)
	children := l.children
	l.children = nil
	for _, c := range children {
		c.parent = to
		if to != nil {
			to.children = append(to.children, c)
		}
		if c.zombie {
			k.notify(c)
		}
	}
	if ns := l.obj.ns; ns.reaper == l {
		ns.reaper = nil
	}
	k.notify(l)
}

func (k *naive) notify(t *naiveTask) {
	if p := t.parent; p == nil || p.ignores || p.noWait {
		k.reap(t)
	}
}

func (k *naive) reap(t *naiveTask) {
	if t.parent != nil {
		t.parent.children = slices.DeleteFunc(t.parent.children, func(o *naiveTask) bool { return o == t })
	}
	k.drop(t)
	for ns := t.obj.ns; ns != nil; ns = ns.parent {
		if r := ns.reaper; r != nil && r.zapping && !k.peopled(ns) {
			r.zapping = false
			k.end(append(slices.Clone(r.threads), r)[0])
		}
	}
}

func (k *naive) heir(l *naiveTask) *naiveTask {
	for p := l.parent; p != nil && p.obj.ns == l.obj.ns; p = p.parent {
		if p.subreaper && !p.zombie {
			return p
		}
	}
	if r := l.obj.ns.reaper; r != l {
		return r
	}
	return nil
}

func (k *naive) zap(ns *naiveNS) {
	ns.dead = true
	reaper := ns.reaper
	reaper.ignores = true
	for {
		i := slices.IndexFunc(k.tasks, func(t *naiveTask) bool {
			return t.obj.in(ns) != 0 && t.leader != reaper && !t.leader.zombie && !t.leader.zapping
		})
		if i < 0 {
			break
		}
		k.exitGroup(k.tasks[i].leader, Signaled(unix.SIGKILL))
	}
	for _, c := range slices.Clone(reaper.children) {
		if c.zombie {
			k.reap(c)
		}
	}
}

func (k *naive) exitGroup(l *naiveTask, status unix.WaitStatus) {
	l.status = status
	for _, t := range slices.Clone(l.threads) {
		k.exit(t)
	}
	if !l.exited {
		k.exit(l)
	}
}

func (k *naive) exec(t *naiveTask) {
	l := t.leader
	for _, o := range slices.Clone(l.threads) {
		k.resume(o)
		l.usage += o.usage
		if o != t {
			k.drop(o)
		}
	}
	if t != l {
		k.resume(l)
		k.drop(t)
		l.kids, l.euid = t.kids, t.euid
	}
	k.resume(l)
	l.waitsFor = nil
	l.threads, l.exited, l.noWait, l.image, l.status = nil, false, false, true, 0
}

func (k *naive) setsid(t *naiveTask) error {
	l := t.leader
	if l.leads || k.anyInGroup(l.obj) {
		return unix.EPERM
	}
	l.leads, l.sid, l.pgid = true, l.obj, l.obj
	return nil
}

func (k *naive) anyInGroup(o *naiveObject) bool {
	return slices.ContainsFunc(k.tasks, func(t *naiveTask) bool { return t.leader == t && t.pgid == o })
}

func (k *naive) setpgid(t *naiveTask, nr, pgid uint32) error {
	l, ns := t.leader, t.obj.ns
	if nr == 0 {
		nr = l.obj.in(ns)
	}
	if pgid == 0 {
		pgid = nr
	}
	p := k.findIn(ns, nr)
	switch {
	case p == nil:
		return unix.ESRCH
	case p.leader != p:
		return unix.EINVAL
	case p == l:
	case p.parent != l:
		return unix.ESRCH
	case p.sid != l.sid:
		return unix.EPERM
	case p.image:
		return unix.EACCES
	}
	if p.leads {
		return unix.EPERM
	}
	to := p.obj
	if pgid != nr {
		to = k.objectIn(ns, pgid)
		if !slices.ContainsFunc(k.tasks, func(o *naiveTask) bool {
			return to != nil && o.leader == o && o.pgid == to && o.sid == l.sid
		}) {
			return unix.EPERM
		}
	}
	p.pgid = to
	return nil
}

func (k *naive) wait(t *naiveTask, id int32, options int) (*naiveTask, error) {
	ns, l := t.obj.ns, t.leader
	found := false
	for _, c := range l.children {
		switch {
		case id == -1, id > 0 && c.obj.in(ns) == uint32(id),
			id == 0 && l.pgid != nil && c.pgid == l.pgid,
			id < -1 && c.pgid != nil && c.pgid.in(ns) == uint32(-id):
		default:
			continue
		}
		found = true
		if c.zombie {
			if options&unix.WNOWAIT == 0 {
				k.reap(c)
			}
			return c, nil
		}
	}
	if !found {
		return nil, unix.ECHILD
	}
	return nil, nil
}
