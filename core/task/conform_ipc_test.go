package task_test

import (
	"errors"
	"fmt"

	"github.com/kpidd/kpidd/core/ns"
	"github.com/kpidd/kpidd/core/task"
	"golang.org/x/sys/unix"
)

// The engine's IPC namespaces are those of core/ns: each task of a script has a
// set, and what changes both a set and a task is undone in the one if the other
// refuses.

// replace gives a task another set; the caller's reference goes to it.
func (m *model) replace(a *actor, set *ns.Set) {
	if a.set != nil {
		a.set.Put()
	}
	a.set = set
}

// ended gives up what a task held.
func (m *model) ended(a *actor) { m.replace(a, nil) }

// leaks says what is left when every task has given its set up: the first
// namespace, and of the others' superblocks those that are mounted.
func (m *model) leaks() error {
	for _, a := range m.actors {
		m.replace(a, nil)
	}
	if n := m.reg.Stats().Namespaces[ns.IPC]; n != 1 {
		return fmt.Errorf("%d IPC namespaces are left, want the first alone", n)
	}
	for _, sb := range m.reg.Superblocks(ns.MQueue) {
		if sb.Mounts() == 0 {
			return errors.New("a superblock is left that is not mounted")
		}
	}
	return nil
}

// mounted is the superblock of the task's IPC namespace.
func (m *model) mounted(by *actor) any { return by.set.At(ns.IPC).Superblock(ns.MQueue) }

// caller is what core/ns is to know of a task.
func (m *model) caller(a *actor) ns.Caller {
	var self, leader task.Info
	m.e.Info(a.handle, &self)
	m.e.Info(self.TGID, &leader)
	return ns.Caller{EUID: self.EUID, Admin: self.EUID == 0, Threaded: leader.Threads > 1}
}

// sharedByThreads is what a thread shares beside what task.ThreadFlags says.
func sharedByThreads(flags uint64) uint64 {
	if flags&unix.CLONE_THREAD == 0 {
		return 0
	}
	return unix.CLONE_FS | unix.CLONE_SYSVSEM
}

func (m *model) unshare(s *step, by *actor) error {
	set, err := m.reg.Unshare(by.set, s.flags&^unix.CLONE_NEWPID, m.caller(by))
	if err != nil {
		return err
	}
	if s.has(unix.CLONE_NEWPID) {
		if _, err := m.e.Unshare(by.handle); err != nil {
			set.Put()
			return err
		}
	}
	m.replace(by, set)
	return nil
}
