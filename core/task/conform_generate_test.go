package task_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"
)

// generator writes a random script that mostly makes sense. It keeps a rough
// notion of who lives, which may be wrong: then a step gives "dead" or an error,
// on both machines alike.
type generator struct {
	r      *rand.Rand
	sc     *script
	living []*role
	all    []*role
	few    bool // the numbers of init's namespace run out
	made   int
}

// role is what the generator believes of a task.
type role struct {
	name   string
	leader *role
	parent *role
	inside *role // the reaper of its namespace
	outer  *role // of a reaper: the one of the namespace around, nil for init
}

// generate writes a script of so many steps.
func generate(seed uint64, steps int) *script {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0x6b70696464)), sc: &script{name: fmt.Sprintf("seed %d", seed)}}
	first := &role{name: "init"}
	first.leader, first.inside = first, first
	g.living, g.all = []*role{first}, []*role{first}
	if g.few = g.r.IntN(8) == 0; g.few {
		g.add(step{actor: "init", verb: doPIDMax, value: 306})
		g.add(step{actor: "init", verb: doLastPID, value: 302})
	}
	for len(g.sc.steps) < steps {
		g.one()
	}
	g.sc.steps = g.sc.steps[:steps]
	return g.sc
}

func (g *generator) add(s step) {
	s.line = len(g.sc.steps) + 1
	g.sc.steps = append(g.sc.steps, s)
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

// someone is a task that lives, as far as is known; seldom any task.
func (g *generator) someone() *role {
	if g.chance(2) {
		return g.all[g.r.IntN(len(g.all))]
	}
	return g.living[g.r.IntN(len(g.living))]
}

// near is a task that has to do with r: itself, its child, its parent, a sibling.
func (g *generator) near(r *role) *role {
	if g.chance(25) {
		return g.someone()
	}
	var close []*role
	for _, o := range g.all {
		if o.parent == r.leader || o.leader == r.leader || o == r.parent || o.parent != nil && o.parent == r.parent {
			close = append(close, o)
		}
	}
	if len(close) == 0 {
		return r
	}
	return close[g.r.IntN(len(close))]
}

// one adds a step, or the few that belong together. The weights add up to 100.
func (g *generator) one() {
	r := g.someone()
	s := step{actor: r.name}
	switch n := g.r.IntN(100); {
	case n < 32:
		g.clone(r)
		return
	case n < 38:
		g.leaves(r.leader)
		return
	case n < 41:
		s.verb, s.value = doExit, g.r.IntN(256)
		if r == g.all[0] {
			return // the script ends with init
		}
		g.end(r)
	case n < 46:
		s.verb, s.value = doExitGroup, g.r.IntN(256)
		if r.leader == g.all[0] {
			return
		}
		g.endGroup(r.leader)
	case n < 52:
		g.kill(r)
		return
	case n < 67:
		g.wait(r)
		return
	case n < 71:
		s.verb = doExec
		g.exec(r)
	case n < 75:
		g.ipc(r)
		return
	default:
		g.change(r)
		return
	}
	g.add(s)
}

// change has a task change something of its own, or look about. The weights add up
// to 25.
func (g *generator) change(r *role) {
	s := step{actor: r.name}
	switch n := g.r.IntN(25); {
	case n < 4:
		s.verb = doSetsid
	case n < 9:
		s.verb, s.name, s.group = doSetpgid, g.near(r).name, g.near(r).name
		if g.chance(30) {
			s.name = "0"
		}
		if g.chance(30) {
			s.group = "0"
		}
	case n < 12:
		s.verb, s.flags = doUnshare, unix.CLONE_NEWPID
		if g.chance(40) {
			s.flags = []uint64{unix.CLONE_NEWIPC, unix.CLONE_NEWIPC | unix.CLONE_NEWPID}[g.r.IntN(2)]
		}
	case n < 15:
		s.verb, s.value = doSubreaper, min(g.r.IntN(4), 1)
	case n < 19:
		s.verb, s.what = doSigchld, dispositions[g.r.IntN(len(dispositions))]
	case n < 22:
		s.verb = doIDs
	case n < 23:
		s.verb = doList
	default:
		s.verb, s.value = doLastPID, g.r.IntN(40)+1
		if g.few {
			s.value = 300 + g.r.IntN(6)
		}
	}
	g.add(s)
}

func (g *generator) clone(r *role) {
	g.made++
	child := &role{name: fmt.Sprintf("t%d", g.made), inside: r.inside, parent: r.leader}
	child.leader = child
	s := step{actor: r.name, verb: doClone, name: child.name}
	switch n := g.r.IntN(100); {
	case n < 25:
		s.flags = unix.CLONE_THREAD
		child.leader, child.parent = r.leader, r.leader.parent
	case n < 33:
		s.flags = unix.CLONE_PARENT
		child.parent = r.leader.parent
	case n < 38:
		s.flags = unix.CLONE_VFORK
	case n < 52:
		s.flags = unix.CLONE_NEWPID
		child.inside, child.outer = child, r.inside
	case n < 54:
		s.flags = unix.CLONE_NEWPID | unix.CLONE_PARENT
		child.inside, child.outer, child.parent = child, r.inside, r.leader.parent
	case n < 55:
		s.flags = unix.CLONE_NEWPID | unix.CLONE_THREAD
	}
	if s.flags&unix.CLONE_THREAD == 0 && g.chance(14) {
		s.setTID = g.numbers(s.flags&unix.CLONE_NEWPID != 0)
	}
	if g.chance(8) {
		s.flags |= unix.CLONE_NEWIPC
	}
	g.add(s)
	if len(g.living) < 14 || g.chance(20) {
		g.living = append(g.living, child)
	}
	g.all = append(g.all, child)
}

// leaves has tasks of one group go before others: one of them makes a child, then
// the leader goes, and most threads after it, one by one; or a thread alone.
func (g *generator) leaves(l *role) {
	var threads []*role
	for _, r := range g.living {
		if r.leader == l && r != l {
			threads = append(threads, r)
		}
	}
	if threads == nil {
		g.thread(l)
		return
	}
	g.child(threads[0], 0)
	going := append([]*role{l}, threads...)
	if l == g.all[0] || g.chance(40) {
		going = threads[:1]
	}
	for _, r := range going {
		g.add(step{actor: r.name, verb: doExit, value: g.r.IntN(256)})
		g.end(r)
	}
}

// child is a new process of a role's.
func (g *generator) child(r *role, flags uint64) *role {
	g.made++
	child := &role{name: fmt.Sprintf("t%d", g.made), inside: r.inside, parent: r.leader}
	child.leader = child
	g.add(step{actor: r.name, verb: doClone, name: child.name, flags: flags})
	g.all, g.living = append(g.all, child), append(g.living, child)
	return child
}

// thread adds one to a group.
func (g *generator) thread(l *role) {
	g.made++
	r := &role{name: fmt.Sprintf("t%d", g.made), inside: l.inside, parent: l.parent, leader: l}
	g.add(step{actor: l.name, verb: doClone, name: r.name, flags: unix.CLONE_THREAD})
	g.all, g.living = append(g.all, r), append(g.living, r)
}

// ipc mounts, or goes into another's namespace and mounts.
func (g *generator) ipc(r *role) {
	target := fmt.Sprintf("m%d", g.r.IntN(10))
	switch n := g.r.IntN(10); {
	case n == 0:
		g.add(step{actor: r.name, verb: doUmount, what: target})
		return
	case n == 1: // a mount outlives its namespace
		first, second := g.child(r, unix.CLONE_NEWIPC), g.child(r, unix.CLONE_NEWIPC)
		g.add(step{actor: first.name, verb: doMQueue, what: target})
		g.add(step{actor: first.name, verb: doExitGroup})
		g.endGroup(first)
		g.add(step{actor: second.name, verb: doMQueue, what: fmt.Sprintf("m%d", g.r.IntN(10))})
		return
	case n < 5:
		g.add(step{actor: r.name, verb: doSetns, name: g.someone().name})
	}
	g.add(step{actor: r.name, verb: doMQueue, what: target})
}

// numbers are requested ones, free, taken or out of range.
func (g *generator) numbers(first bool) (list []int) {
	pick := func() int {
		switch g.r.IntN(12) {
		case 0:
			return -g.r.IntN(2)
		case 1:
			return 5_000_000
		case 2:
			return 1
		}
		return 2 + g.r.IntN(40)
	}
	if first {
		list = append(list, 1)
		if g.chance(10) {
			list[0] = 2
		}
	}
	for range g.r.IntN(3) {
		list = append(list, pick())
	}
	if list == nil {
		list = append(list, pick())
	}
	return list
}

func (g *generator) kill(r *role) {
	o := g.near(r)
	s := step{actor: r.name, verb: doKill, name: o.name, value: int(signals[g.r.IntN(len(signals))].value)}
	if o.leader == g.all[0] && s.value == int(unix.SIGKILL) && g.chance(80) {
		return // it does not hear it
	}
	if s.value != 0 && o.leader != g.all[0] && (o.leader.inside != o.leader || s.value == int(unix.SIGKILL)) {
		g.endGroup(o.leader)
	}
	g.add(s)
}

func (g *generator) wait(r *role) {
	if g.chance(70) { // somebody with children
		r = g.all[g.r.IntN(len(g.all))].parent
		if r == nil || !slices.Contains(g.living, r) {
			r = g.all[0]
		}
	}
	s := step{actor: r.name, verb: doWait, group: "any"}
	switch g.r.IntN(4) {
	case 0:
		s.group, s.name = "pid", g.near(r).name
	case 1:
		s.group, s.name = "pgid", g.near(r).name
		if g.chance(40) {
			s.name = "0"
		}
	}
	if g.chance(60) {
		s.flags |= unix.WNOHANG
	}
	if g.chance(15) {
		s.flags |= unix.WNOWAIT
	}
	g.add(s)
}

func (g *generator) drop(ends func(r *role) bool) {
	kept := g.living[:1]
	for _, r := range g.living[1:] {
		if !ends(r) {
			kept = append(kept, r)
		}
	}
	g.living = kept
}

// within tells that a role is in the namespace of a reaper, or below it.
func (r *role) within(reaper *role) bool {
	for in := r.inside; in != nil; in = in.outer {
		if in == reaper {
			return true
		}
	}
	return false
}

func (g *generator) end(r *role) { g.drop(func(o *role) bool { return o == r }) }

func (g *generator) endGroup(l *role) {
	g.drop(func(o *role) bool { return o.leader == l || o.within(l) })
}

// exec leaves the leader alone of its group, and alive.
func (g *generator) exec(r *role) {
	l := r.leader
	g.drop(func(o *role) bool { return o.leader == l })
	if l != g.all[0] {
		g.living = append(g.living, l)
	}
}
