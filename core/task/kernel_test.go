package task

import (
	"fmt"
	"math/rand/v2"
)

// simMax bounds the pid numbers of the simulated kernel: so few that each is used
// again and again within one tick.
const simMax = 64

// kernel is a small model of how Linux makes, shows, and tells of tasks. What takes
// several steps there takes several here: a task is to be seen before its fork is
// told; it is to be seen alive after its exit was told; an exec by a thread takes
// the leader's number before it is told.
type kernel struct {
	r       *rand.Rand
	now     uint64 // CLOCK_MONOTONIC
	next    uint32 // cyclic allocation
	lives   uint64
	tasks   [simMax]*simTask
	pending []func() // second halves of what was begun
	log     []simEvent
	style   simStyle
}

// simStyle is how a kernel behaves and what its source tells.
type simStyle struct {
	pids         uint32 // numbers in use: 2 to pids-1
	cloneParent  bool   // clones may ask for the caller's parent
	tellsParent  bool
	tellsCreator bool
	reapsSlowly  bool
}

type simPhase uint8

const (
	running  simPhase = iota
	hatching          // can be seen; its fork is not told yet
	dying             // its exit is told; it can be seen as if alive
	dead              // a leader that has exited: Z
)

type simTask struct {
	life      uint64
	tid, tgid uint32
	ppid      uint32 // leader: tgid of the parent
	startNs   uint64 // CLOCK_BOOTTIME
	comm      [16]byte
	phase     simPhase
	busy      bool // in the middle of clone or execve
	execing   bool // leader: the group is being reduced to one thread
	reapable  bool // leader: all have exited and the children are given away
}

type simKind uint8

const (
	simFork simKind = iota
	simExec
	simExit
	simComm
)

type simEvent struct {
	kind            simKind
	at              uint64
	tid, tgid, ppid uint32
	creator         uint32
	comm            [16]byte
}

func newKernel(r *rand.Rand, style simStyle) *kernel {
	k := &kernel{r: r, now: 1e9 + r.Uint64N(tickNs), next: 2, style: style}
	k.add(&simTask{tid: 1, tgid: 1, comm: comm("init")})
	return k
}

func (k *kernel) add(s *simTask) {
	k.lives++
	s.life, s.startNs = k.lives, k.now+bootNs
	k.tasks[s.tid] = s
}

func (k *kernel) tell(e simEvent) {
	e.at = k.now
	k.log = append(k.log, e)
}

// step lets a little happen.
func (k *kernel) step() {
	k.now += 1 + k.r.Uint64N(60e3)
	if k.r.IntN(40) == 0 {
		k.now += k.r.Uint64N(1.5 * tickNs)
	}
	if len(k.pending) > 0 && k.r.IntN(2) == 0 {
		k.proceed()
		return
	}
	s := k.pick()
	switch n := k.r.IntN(100); {
	case n < 30:
		k.fork(s, true)
	case n < 45:
		k.fork(s, false)
	case n < 60:
		k.exit(s)
	case n < 65:
		k.exitGroup(s)
	case n < 73:
		k.exec(s)
	case n < 80:
		k.rename(s)
	case n < 84 && k.style.reapsSlowly:
	default:
		k.reap()
	}
}

// proceed runs the second half of something.
func (k *kernel) proceed() {
	i := k.r.IntN(len(k.pending))
	do := k.pending[i]
	k.pending = append(k.pending[:i], k.pending[i+1:]...)
	do()
}

// settle lets everything that was begun come to its end.
func (k *kernel) settle() {
	for len(k.pending) > 0 {
		k.now += 1000
		k.proceed()
	}
}

func (k *kernel) later(do func()) { k.pending = append(k.pending, do) }

// pick returns a task that runs and is not in the middle of something.
func (k *kernel) pick() *simTask {
	var able []*simTask
	for _, s := range k.tasks {
		if s != nil && s.phase == running && !s.busy {
			able = append(able, s)
		}
	}
	if len(able) == 0 {
		return nil
	}
	return able[k.r.IntN(len(able))]
}

func (k *kernel) leader(s *simTask) *simTask { return k.tasks[s.tgid] }

// group returns the tasks of a group, the leader included.
func (k *kernel) group(tgid uint32) (g []*simTask) {
	for _, s := range k.tasks {
		if s != nil && s.tgid == tgid {
			g = append(g, s)
		}
	}
	return g
}

func (k *kernel) allocate() uint32 {
	for range k.style.pids {
		tid := k.next
		if k.next++; k.next >= k.style.pids {
			k.next = 2
		}
		if k.tasks[tid] == nil {
			return tid
		}
	}
	return 0
}

func (k *kernel) fork(s *simTask, process bool) {
	if s == nil || k.leader(s).execing || !process && s.tgid == 1 {
		return
	}
	tid := k.allocate()
	if tid == 0 {
		return
	}
	child := &simTask{tid: tid, tgid: s.tgid, comm: s.comm, phase: hatching}
	e := simEvent{kind: simFork, tid: tid, tgid: s.tgid, ppid: s.tgid}
	if process {
		child.tgid, child.ppid = tid, s.tgid
		e.tgid = tid
		if k.style.cloneParent && s.tgid != 1 && k.r.IntN(4) == 0 {
			child.ppid = k.leader(s).ppid
		}
	}
	if k.style.tellsCreator {
		e.creator = s.tid
	}
	k.add(child)
	s.busy = true
	k.later(func() {
		s.busy = false
		child.phase = running
		if process && k.style.tellsParent {
			e.ppid = child.ppid
		}
		k.tell(e)
	})
}

func (k *kernel) exit(s *simTask) {
	if s == nil || s.tid == 1 {
		return
	}
	s.phase = dying
	k.tell(simEvent{kind: simExit, tid: s.tid, tgid: s.tgid})
	k.later(func() { k.exited(s) })
}

func (k *kernel) exitGroup(s *simTask) {
	if s == nil || s.tgid == 1 {
		return
	}
	for _, m := range k.group(s.tgid) {
		if m.phase == running && !m.busy {
			k.exit(m)
		}
	}
}

// exited is the end of exit: a thread goes, a leader becomes a zombie, and with
// the last of them the process ends.
func (k *kernel) exited(s *simTask) {
	l := k.leader(s)
	if s == l {
		s.phase = dead
	} else {
		k.tasks[s.tid] = nil
	}
	if l.phase != dead || len(k.group(l.tgid)) > 1 {
		return
	}
	for _, c := range k.tasks {
		if c != nil && c.tid == c.tgid && c.ppid == l.tgid {
			c.ppid = 1
		}
	}
	l.reapable = true
}

func (k *kernel) reap() {
	for i := range k.tasks {
		s := k.tasks[(i+int(k.r.Uint32()))%simMax]
		if s != nil && s.reapable {
			k.tasks[s.tid] = nil
			return
		}
	}
}

func (k *kernel) rename(s *simTask) {
	if s == nil {
		return
	}
	s.comm = comm(fmt.Sprintf("name%d.%d", s.life, k.r.IntN(100)))
	k.tell(simEvent{kind: simComm, tid: s.tid, tgid: s.tgid, comm: s.comm})
}

// exec ends every other task of the group; then the caller has the leader's
// number, start and identity.
func (k *kernel) exec(s *simTask) {
	if s == nil || s.tgid == 1 || k.leader(s).execing {
		return
	}
	s.busy = true
	k.leader(s).execing = true
	var wait func()
	wait = func() {
		others := false
		for _, m := range k.group(s.tgid) {
			if m == s || m.tid == m.tgid && m.phase == dead {
				continue
			}
			others = true
			if m.phase == running && !m.busy {
				k.exit(m)
			}
		}
		if others {
			k.later(wait)
			return
		}
		if l := k.leader(s); l != s {
			k.tasks[s.tid] = nil
			s.tid, s.life, s.startNs, s.ppid = l.tid, l.life, l.startNs, l.ppid
			k.tasks[s.tid] = s
		}
		s.execing = true
		k.later(func() {
			s.busy, s.execing = false, false
			s.comm = comm(fmt.Sprintf("exec%d.%d", s.life, k.r.IntN(100)))
			k.tell(simEvent{kind: simExec, tid: s.tgid, tgid: s.tgid, comm: s.comm})
		})
	}
	k.later(wait)
}

// look is what /proc shows of a task, nil if it is not there.
func (k *kernel) look(tid, tgid uint32) *Seen {
	s := k.tasks[tid]
	if s == nil || s.tgid != tgid {
		return nil
	}
	l := k.leader(s)
	seen := &Seen{TID: s.tid, TGID: s.tgid, PPID: l.ppid, StartTicks: s.startNs / tickNs, State: 'S', Comm: s.comm, AtNs: k.now}
	seen.Exiting = s.phase == dying || s.phase == dead
	if s.phase == dead {
		seen.State = 'Z'
	}
	return seen
}

func (k *kernel) leaders() (pids []uint32) {
	for _, s := range k.tasks {
		if s != nil && s.tid == s.tgid {
			pids = append(pids, s.tid)
		}
	}
	return pids
}

func (k *kernel) threads(tgid uint32) (tids []uint32) {
	for _, s := range k.group(tgid) {
		if s.tid != tgid {
			tids = append(tids, s.tid)
		}
	}
	return tids
}
