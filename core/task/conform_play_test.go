package task_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kpidd/kpidd/core/ns"
	"golang.org/x/sys/unix"
)

// machine is what a script is played on: the running kernel or the engine. A step
// is done when all that it causes is over: ends, adoptions, releases.
type machine interface {
	// begin makes init: number 1, a session and a group of its own, executed.
	begin(init *actor) error
	// do carries out a step and says what came of it. A clone that succeeds fills
	// in what it knows of made, the task that the step names.
	do(s *step, by *actor, c *cast, made *actor) (string, error)
	// alive tells whether the task can take another step.
	alive(a *actor) (bool, error)
	// held tells whether the task waits in its vfork.
	held(a *actor) bool
	// mounted is the superblock that the task has just mounted.
	mounted(by *actor) any
	// ended is told of each task that has ended.
	ended(a *actor)
	// unblock waits until the parent of a vfork goes on.
	unblock(a *actor) error
	// state is everything visible of the script's processes, in listing order.
	state() ([]process, error)
}

// process is what a listing of init's namespace shows of one process.
type process struct {
	Numbers []int // in init's namespace, and below it down to its own
	PPID    int
	PGID    int
	SID     int
	State   string  // alive, zombie, "leader exited", or ending: a reaper that waits for its namespace
	Tasks   [][]int // numbers of each task, by number; none of one that is ending
}

// trace is what came of a script on one machine.
type trace struct {
	Results  []string
	Followed []string          // why a step took the other machine's choice of several right ones, "" if it did not
	Numbers  map[string][]int  // of each task at its birth, from init's namespace down
	IDs      map[string]string // of the tasks alive at the end: as the step ids gives them
	Listing  []process
	Hits     map[string]int // how often which rule had a visible effect
}

// space is a PID namespace, level 0 for init's.
type space struct {
	parent *space
	level  int
}

// noNumber stands for a task that a namespace has no number for.
const noNumber = 99_999

// actor is a task of a script under way.
type actor struct {
	name        string
	leader      *actor // itself if it leads its group
	space       *space
	forChildren *space
	numbers     []int // one for each level of its space
	dead        bool
	image       bool   // has executed
	ipc         *space // its IPC namespace
	by          *actor // who made it
	vforked     *actor // the child of a vfork that it waits for, nil if none

	slot      uint32 // kernel: on the board
	tgid, tid int    // kernel: in init's namespace
	freed     bool   // kernel: its number was seen free after its end

	handle, gen uint32  // engine: root number, and which life of it
	set         *ns.Set // engine: its namespaces
}

// number is the task's number in a namespace.
func (a *actor) number(in *space) int {
	if a == nil || a.space == nil {
		return noNumber
	}
	at := a.space
	for at.level > in.level {
		at = at.parent
	}
	if at != in {
		return noNumber
	}
	return a.numbers[in.level]
}

// cast is every task of a script that was made, dead or alive.
type cast struct {
	actors   map[string]*actor
	order    []*actor // by birth
	shuffled bool     // several tasks of a group have ended at once
	threads  bool     // a thread that leads no group has children
	follow   *trace   // of the other machine, nil on the first
	mounts   []mount  // the oldest first
	took     string   // why this step took the other machine's choice, "" if it did not
}

// mount is a mounted file system.
type mount struct {
	target     string
	superblock any
	ipc        *space
}

// anyLeft tells whether a task of the group lives.
func (c *cast) anyLeft(leader *actor) bool { return c.left(leader) > 0 }

// left counts the living tasks of a group.
func (c *cast) left(leader *actor) (n int) {
	for _, a := range c.order {
		if a.leader == leader && !a.dead {
			n++
		}
	}
	return n
}

func (c *cast) enter(a *actor) {
	c.actors[a.name] = a
	c.order = append(c.order, a)
}

// number is what a step's name stands for in a call by an actor: 0 for "0".
func (c *cast) number(name string, by *actor) int {
	if name == "0" {
		return 0
	}
	return c.actors[name].number(by.space)
}

// play runs a script on a machine. Where a wait has several right answers, it takes
// that of the trace to follow, if there is one.
func play(sc *script, m machine, follow *trace) (*trace, error) {
	c := &cast{actors: map[string]*actor{}, follow: follow}
	root := &space{}
	first := &actor{name: "init", space: root, forChildren: root, ipc: &space{}}
	first.leader = first
	if err := m.begin(first); err != nil {
		return nil, err
	}
	c.enter(first)
	tr := &trace{Numbers: map[string][]int{}, IDs: map[string]string{}, Hits: map[string]int{}}
	for i := range sc.steps {
		s := &sc.steps[i]
		result, err := c.step(s, m, i)
		if err != nil {
			return nil, fmt.Errorf("line %d, %s: %w", s.line, s, err)
		}
		tr.Results = append(tr.Results, result)
		tr.Followed = append(tr.Followed, c.took)
		tr.countStep(s, result, c)
	}
	for _, a := range c.order {
		if !a.dead && a.vforked == nil {
			ids, err := m.do(&step{actor: a.name, verb: doIDs}, a, c, nil)
			if err != nil {
				return nil, fmt.Errorf("ids of %s: %w", a.name, err)
			}
			tr.IDs[a.name] = ids
		}
	}
	for _, a := range c.order {
		tr.Numbers[a.name] = a.numbers
	}
	var err error
	tr.Listing, err = m.state()
	tr.countListing(c)
	return tr, err
}

// levelsMax is how deep namespaces nest. Whoever requests more numbers than that
// gets an error at once, before any of them is looked at.
const levelsMax = 32

// levels is how many numbers the task has that a clone is to make.
func (s *step) levels(by *actor) int {
	if s.has(unix.CLONE_NEWPID) {
		return by.forChildren.level + 2
	}
	return by.forChildren.level + 1
}

func (c *cast) step(s *step, m machine, i int) (result string, err error) {
	by := c.actors[s.actor]
	c.took = ""
	switch {
	case by == nil || by.dead:
		return "dead", nil
	case by.vforked != nil && m.held(by):
		return "busy", nil
	case by.vforked != nil:
		return "free", nil
	case len(s.setTID) > s.levels(by) && len(s.setTID) <= levelsMax:
		return "refused", nil
	}
	if c.gone(s, s.name) || c.gone(s, s.group) {
		return "gone", nil
	}
	var made *actor
	if s.verb == doClone {
		made = c.conceive(s, by)
	}
	if (c.shuffled || c.threads) && s.verb == doWait && s.group != "pid" && c.follow != nil {
		return c.waitAlike(s, by, m, c.follow.Results[i])
	}
	before := c.left(by.leader)
	if result, err = m.do(s, by, c, made); err != nil {
		return "", err
	}
	switch s.verb {
	case doClone:
		if made.numbers == nil {
			break
		}
		if got, want := len(made.numbers), made.space.level+1; got != want {
			return "", fmt.Errorf("%s has numbers %v, want %d of them", made.name, made.numbers, want)
		}
		c.enter(made)
		c.threads = c.threads || by != by.leader && made == made.leader
		if s.has(unix.CLONE_VFORK) {
			by.vforked = made
		}
	case doUnshare:
		if result == "ok" && s.has(unix.CLONE_NEWPID) {
			by.forChildren = &space{by.space, by.space.level + 1}
		}
		if result == "ok" && s.has(unix.CLONE_NEWIPC) {
			by.ipc = &space{}
		}
	case doSetns:
		if result == "ok" {
			by.ipc = c.actors[s.name].ipc
		}
	case doMQueue:
		if result == "ok" {
			result = c.mounted(s.what, by, m.mounted(by))
		}
	case doUmount:
		if result == "ok" {
			c.unmounted(s.what)
		}
	case doExec:
		if result == "ok" {
			c.executed(by, m)
			c.shuffled = c.shuffled || before > 2
		}
		return result, c.refresh(m)
	case doExit, doExitGroup, doKill:
		return result, c.refresh(m)
	}
	return result, nil
}

// gone tells that a step is not to be taken because of a task that it names: one
// that has ended has no namespace; and of the threads of a reaper that waits for its
// namespace any can be left, so that the number of a thread that has ended may still
// be there.
func (c *cast) gone(s *step, name string) bool {
	a := c.actors[name]
	switch s.verb {
	case doSetns:
		return name != "" && (a == nil || a.dead)
	case doKill, doSetpgid:
		return a != nil && a.dead && a != a.leader
	}
	return false
}

// waitNumber is the wait for a number, which scripts cannot ask for.
const waitNumber = "number"

// waitAlike is a wait where the order of children is open. Tasks of one group that
// end at the same time give their children away in any order. And a thread has a
// list of its own on the kernel and is asked for it first, while the engine keeps
// one for the process. Who comes first of several zombies is unspecified, so the
// other machine's choice is as good, if this one has it too.
func (c *cast) waitAlike(s *step, by *actor, m machine, other string) (string, error) {
	probe := *s
	probe.flags |= unix.WNOHANG | unix.WNOWAIT
	own, err := m.do(&probe, by, c, nil)
	if err != nil {
		return "", err
	}
	var nr int
	if n, _ := fmt.Sscanf(other, "%d ", &nr); n == 1 && own != other && strings.Contains(own, " ") {
		choice := *s
		choice.group, choice.value = waitNumber, nr
		if c.took = ownLists; c.shuffled {
			c.took = anyOrder
		}
		return m.do(&choice, by, c, nil)
	}
	return m.do(s, by, c, nil)
}

// conceive is the task that a clone would make.
func (c *cast) conceive(s *step, by *actor) *actor {
	a := &actor{name: s.name, by: by, space: by.forChildren, ipc: by.ipc}
	if s.has(unix.CLONE_NEWIPC) {
		a.ipc = &space{}
	}
	a.leader = a
	if s.has(unix.CLONE_THREAD) {
		a.leader, a.space = by.leader, by.space
	} else if s.has(unix.CLONE_NEWPID) {
		a.space = &space{by.space, by.space.level + 1}
	}
	a.forChildren = a.space
	return a
}

// executed makes the group's leader the task that goes on.
func (c *cast) executed(by *actor, m machine) {
	l := by.leader
	l.forChildren, l.ipc, l.vforked, l.image, l.dead = by.forChildren, by.ipc, nil, true, false
	for _, a := range c.order {
		if a.leader == l && a != l && !a.dead {
			a.dead = true
			m.ended(a)
		}
	}
}

// mounted notes a mount, and says which other shows the same superblock.
func (c *cast) mounted(target string, by *actor, superblock any) string {
	result := "ok new"
	if i := slices.IndexFunc(c.mounts, func(o mount) bool { return o.superblock == superblock }); i >= 0 {
		result = "ok as " + c.mounts[i].target
	}
	c.mounts = append(c.mounts, mount{target, superblock, by.ipc})
	return result
}

// unmounted forgets the last mount at a target.
func (c *cast) unmounted(target string) {
	for i := len(c.mounts) - 1; i >= 0; i-- {
		if c.mounts[i].target == target {
			c.mounts = slices.Delete(c.mounts, i, i+1)
			return
		}
	}
}

// outlived tells whether a mount shows an IPC namespace that is dead.
func (c *cast) outlived() bool {
	return slices.ContainsFunc(c.mounts, func(o mount) bool {
		return !slices.ContainsFunc(c.order, func(a *actor) bool { return !a.dead && a.ipc == o.ipc })
	})
}

// refresh finds out who has ended, and lets the parents of vforks go on whose
// child has ended or executed.
func (c *cast) refresh(m machine) error {
	ended := map[*actor]int{}
	for _, a := range c.order {
		if a.dead {
			continue
		}
		ok, err := m.alive(a)
		if err != nil {
			return fmt.Errorf("is %s alive: %w", a.name, err)
		}
		if a.dead = !ok; a.dead {
			m.ended(a)
			ended[a.leader]++
			c.shuffled = c.shuffled || ended[a.leader] > 1
		}
	}
	for _, a := range c.order {
		if child := a.vforked; child != nil && (child.dead || child.image) {
			a.vforked = nil
			if !a.dead {
				if err := m.unblock(a); err != nil {
					return fmt.Errorf("end of %s's vfork: %w", a.name, err)
				}
			}
		}
	}
	return nil
}
