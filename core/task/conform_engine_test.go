package task_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kpidd/kpidd/core/ns"
	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
	"golang.org/x/sys/unix"
)

// model plays a script on the engine, through its request door. The script's
// namespace is the engine's root, or one below it: then all that the root knows of
// the script is numbers of its own.
type model struct {
	e     *task.Engine
	root  *pid.Namespace // the engine's
	space *pid.Namespace // the script's
	below bool

	reg    *ns.Registry
	actors []*actor // all that were given a set
}

// onEngine plays a script on an engine, in its root namespace or below it.
func onEngine(sc *script, below bool, follow *trace) (*trace, error) {
	w, err := table.NewAnonymous()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	e := task.New(w, 100)
	m := &model{e: e, root: e.Namespace(), space: e.Namespace(), below: below, reg: ns.New(ns.Hooks{})}
	tr, err := play(sc, m, follow)
	if err == nil {
		err = m.leaks()
	}
	return tr, err
}

var puppetName = [16]byte{'p', 'u', 'p', 'p', 'e', 't'}

func (m *model) begin(init *actor) error {
	tid, err := m.e.Start(puppetName)
	if err == nil && m.below {
		if tid, err = m.e.Clone(tid, &task.CloneArgs{Flags: unix.CLONE_NEWPID}); err == nil {
			m.space = m.e.Pids().NamespaceOf(m.root.Find(tid))
		}
	}
	if err != nil {
		return err
	}
	if _, err := m.e.SetSID(tid); err != nil {
		return err
	}
	if err := m.e.Exec(tid, puppetName); err != nil {
		return err
	}
	m.replace(init, m.reg.First().Get())
	m.actors = append(m.actors, init)
	return m.met(init, tid)
}

// met notes what is known of a new task.
func (m *model) met(a *actor, tid uint32) error {
	h, ok := m.e.Task(tid)
	if !ok {
		return fmt.Errorf("task %d is not found", tid)
	}
	a.handle, a.gen = tid, h.Gen
	for _, nr := range m.e.Pids().Numbers(m.root.Find(tid), m.space, nil) {
		a.numbers = append(a.numbers, int(nr))
	}
	return nil
}

// settle waits until numbers that were freed can be used again, as they can on the
// kernel at once.
func (m *model) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return m.e.Pids().Settle(ctx)
}

// named is how an error is written.
func named(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func (m *model) do(s *step, by *actor, c *cast, made *actor) (string, error) {
	tid := by.handle
	switch s.verb {
	case doClone:
		return m.clone(s, by, made)
	case doExec:
		err := m.e.Exec(tid, puppetName)
		if err == nil {
			m.replace(by.leader, by.set.Get())
		}
		return named(err), m.settle()
	case doExit:
		return named(m.e.Exit(tid, task.Exited(uint8(s.value)))), m.settle()
	case doExitGroup:
		return named(m.e.ExitGroup(tid, task.Exited(uint8(s.value)))), m.settle()
	case doSetsid:
		sid, err := m.e.SetSID(tid)
		if err != nil {
			return named(err), nil
		}
		return fmt.Sprint("ok ", m.shown(sid, by)), m.settle()
	case doSetpgid:
		return named(m.e.SetPGID(tid, uint32(c.number(s.name, by)), uint32(c.number(s.group, by)))), m.settle()
	case doUnshare:
		return named(m.unshare(s, by)), nil
	case doWait:
		result := m.wait(s, by, c)
		return result, m.settle()
	case doKill:
		return m.kill(s, by, c.number(s.name, by)), m.settle()
	case doSubreaper:
		return named(m.e.SetSubreaper(tid, s.value != 0)), nil
	case doSigchld:
		return m.sigchld(s, tid), nil
	case doIDs:
		return m.ids(by)
	case doList:
		return m.list(m.own(by)), nil
	case doPIDMax:
		return named(m.own(by).SetMax(uint32(s.value))), nil
	case doLastPID:
		return named(m.own(by).SetLast(uint32(s.value))), nil
	case doSetuid:
		return named(m.e.SetUID(tid, uint32(s.value), uint32(s.value))), nil
	case doMQueue:
		return named(m.reg.Mount(by.set, m.caller(by), ns.MQueue, s.what)), nil
	case doUmount:
		return named(m.reg.Unmount(by.set, m.caller(by), s.what)), nil
	case doSetns:
		set, err := m.reg.Setns(by.set, c.actors[s.name].set.At(ns.IPC), unix.CLONE_NEWIPC, m.caller(by))
		if err == nil {
			m.replace(by, set)
		}
		return named(err), nil
	}
	return "", fmt.Errorf("no call for %s", s.verb)
}

// own is the namespace of a task.
func (m *model) own(a *actor) *pid.Namespace { return m.e.Pids().NamespaceOf(m.root.Find(a.handle)) }

// shown is a root number as the task's namespace shows it, 0 if it does not.
func (m *model) shown(nr uint32, to *actor) uint32 {
	slot := m.root.Find(nr)
	if nr == 0 || slot == 0 {
		return 0
	}
	return m.e.Pids().Number(slot, m.own(to))
}

func (m *model) clone(s *step, by, made *actor) (string, error) {
	args := task.CloneArgs{Flags: s.flags}
	if s.has(unix.CLONE_THREAD) {
		args.Flags |= task.ThreadFlags
	}
	for _, nr := range s.setTID {
		args.SetTID = append(args.SetTID, uint32(nr))
	}
	set, err := m.reg.Clone(by.set, args.Flags&^unix.CLONE_NEWPID|sharedByThreads(args.Flags), m.caller(by))
	if err != nil {
		return named(err), nil
	}
	tid, err := m.e.Clone(by.handle, &args)
	if err != nil {
		set.Put()
		return named(err), m.settle()
	}
	m.replace(made, set)
	m.actors = append(m.actors, made)
	if err := m.met(made, tid); err != nil {
		return "", err
	}
	return fmt.Sprint("ok ", m.shown(tid, by)), nil
}

func (m *model) wait(s *step, by *actor, c *cast) string {
	id := int32(-1)
	switch s.group {
	case "pid":
		id = int32(c.number(s.name, by))
	case waitNumber:
		id = int32(s.value)
	case "pgid":
		id = -int32(c.number(s.name, by))
	}
	options := int(s.flags)
	if !s.has(unix.WNOHANG) {
		if got, err := m.e.Wait(by.handle, id, options|unix.WNOHANG|unix.WNOWAIT); err != nil {
			return named(err)
		} else if got.PID == 0 {
			return "blocks"
		}
	}
	got, err := m.e.Wait(by.handle, id, options)
	switch {
	case err != nil:
		return named(err)
	case got.PID == 0:
		return "none"
	case got.Status.Signaled():
		return fmt.Sprint(got.PID, " killed ", int(got.Status.Signal()))
	}
	return fmt.Sprint(got.PID, " exited ", got.Status.ExitStatus())
}

// kill is what a signal does to a process that has no handler: the engine knows
// only how it ends.
func (m *model) kill(s *step, by *actor, nr int) string {
	own := m.own(by)
	slot := own.Find(uint32(nr))
	if slot == 0 {
		return named(unix.ESRCH)
	}
	h, ok := m.e.Task(m.e.Pids().Number(slot, m.root))
	if !ok {
		return named(unix.ESRCH)
	}
	leader := m.root.Find(h.TGID)
	its := m.e.Pids().NamespaceOf(leader)
	deaf := its.Reaper() == leader && (its == own || s.value != int(unix.SIGKILL))
	if s.value != 0 && !deaf {
		err := m.e.ExitGroup(h.TID, task.Signaled(unix.Signal(s.value)))
		if err != nil && !errors.Is(err, unix.ESRCH) { // a zombie hears it too
			return named(err)
		}
	}
	return "ok"
}

func (m *model) sigchld(s *step, tid uint32) string {
	if err := m.e.IgnoreChildren(tid, s.what == "SIG_IGN"); err != nil {
		return named(err)
	}
	return named(m.e.NoChildWait(tid, s.what == "SA_NOCLDWAIT"))
}

func (m *model) ids(by *actor) (string, error) {
	var self, leader task.Info
	if !m.e.Info(by.handle, &self) || !m.e.Info(self.TGID, &leader) {
		return "", fmt.Errorf("no task %d", by.handle)
	}
	shown := func(nr uint32) uint32 { return m.shown(nr, by) }
	return fmt.Sprint(shown(self.TGID), shown(self.TID), shown(leader.PPID), shown(self.PGID), shown(self.SID)), nil
}

// list is what a namespace lists, from the first to the last leader.
func (m *model) list(ns *pid.Namespace) string {
	var h table.Hot
	var numbers []string
	for w := ns.Leaders(0); w.Next(&h); {
		numbers = append(numbers, fmt.Sprint(w.Number()))
	}
	return strings.Join(numbers, " ")
}

func (m *model) alive(a *actor) (bool, error) {
	h, ok := m.e.Task(a.handle)
	return ok && h.Gen == a.gen && h.Flags&(table.FlagExitedLeader|table.FlagZombie) == 0 && !m.ending(h.TGID), nil
}

// ending tells that a process is a reaper that waits for its namespace, which takes
// no more tasks.
func (m *model) ending(tgid uint32) bool {
	slot := m.root.Find(tgid)
	ns := m.e.Pids().NamespaceOf(slot)
	return ns.Closed() && ns.Reaper() == slot
}

// held: a task that waits in its vfork can ask for nothing.
func (m *model) held(a *actor) bool {
	_, err := m.e.Wait(a.handle, -1, unix.WNOHANG|unix.WNOWAIT)
	return errors.Is(err, unix.EBUSY)
}

func (m *model) unblock(a *actor) error {
	if m.held(a) {
		return errors.New("its vfork still holds it")
	}
	return nil
}

func (m *model) state() (all []process, err error) {
	tasks := map[uint32][][]int{} // tgid -> numbers of each
	for nr, slot, ok := m.space.Next(0); ok; nr, slot, ok = m.space.Next(nr + 1) {
		if h, ok := m.e.Task(m.e.Pids().Number(slot, m.root)); ok {
			tasks[h.TGID] = append(tasks[h.TGID], m.numbers(slot))
		}
	}
	var h table.Hot
	for w := m.space.Leaders(0); w.Next(&h); {
		var i task.Info
		if !m.e.Info(h.TID, &i) {
			return nil, fmt.Errorf("task %d is listed and not there", h.TID)
		}
		in := func(nr uint32) int {
			if slot := m.root.Find(nr); nr != 0 && slot != 0 {
				return int(m.e.Pids().Number(slot, m.space))
			}
			return 0
		}
		p := process{
			Numbers: m.numbers(m.root.Find(h.TID)), PPID: in(i.PPID), PGID: in(i.PGID), SID: in(i.SID),
			State: "alive", Tasks: tasks[h.TID],
		}
		switch {
		case m.ending(h.TID):
			p.State = "ending"
		case h.Flags&table.FlagZombie != 0:
			p.State = "zombie"
		case h.Flags&table.FlagExitedLeader != 0:
			p.State = "leader exited"
		}
		if int(h.Threads) != len(p.Tasks) {
			return nil, fmt.Errorf("process %d has %d tasks, and says %d", h.TID, len(p.Tasks), h.Threads)
		}
		if p.State == "ending" {
			p.Tasks = nil // as on the kernel
		}
		slices.SortFunc(p.Tasks, func(a, b []int) int { return a[0] - b[0] })
		all = append(all, p)
	}
	return all, nil
}

// numbers are those of a pid object, from the script's namespace down.
func (m *model) numbers(slot uint32) (numbers []int) {
	for _, nr := range m.e.Pids().Numbers(slot, m.space, nil) {
		numbers = append(numbers, int(nr))
	}
	return numbers
}
