package task_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kpidd/kpidd/core/procfile"
	"golang.org/x/sys/unix"
)

// numbers are a task's in the script's namespace and below it.
func (k *kernel) numbers(tgid, tid int) (numbers []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("%s/%d/task/%d/status", k.root, tgid, tid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		list, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		for _, word := range strings.Fields(list) {
			nr, err := strconv.Atoi(word)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, nr)
		}
		return numbers, nil
	}
	return nil, errors.New("no NSpid in its status")
}

// gone tells that an error means that the task is no more.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// stat reads a process's line. ok is false if it is no more.
func (k *kernel) stat(tgid int) (st procfile.Stat, ok bool, err error) {
	err = k.proc.TaskStat(uint32(tgid), uint32(tgid), &st)
	if gone(err) {
		return st, false, nil
	}
	return st, err == nil, err
}

// alive: the task is listed and has not exited.
func (k *kernel) alive(a *actor) (bool, error) {
	var st procfile.Stat
	err := k.proc.TaskStat(uint32(a.tgid), uint32(a.tid), &st)
	if gone(err) {
		return false, nil
	}
	return st.State != 'Z' && st.State != 'X' && !k.ending(a.tgid), err
}

// ending tells that a process is a reaper on its way out, which waits until its
// namespace is empty: those with a parent outside stay until that one reaps them.
// Its last thread waits, whichever that is.
func (k *kernel) ending(tgid int) bool {
	if !k.zaps || k.zapping[tgid] {
		return k.zaps // now and then it looks about, and is not seen waiting
	}
	tids, _, _ := k.proc.TIDs(uint32(tgid), nil)
	waits := slices.ContainsFunc(tids, func(tid uint32) bool {
		where, _ := os.ReadFile(fmt.Sprintf("%s/%d/task/%d/wchan", k.root, tgid, tid))
		return string(where) == "zap_pid_ns_processes"
	})
	if waits {
		k.zapping[tgid] = true
	}
	return waits
}

// emptied waits for the end of every reaper whose namespace nothing keeps any more.
func (k *kernel) emptied(c *cast) error {
	for end := time.Now().Add(patience); k.zaps; time.Sleep(peekInterval) {
		again := false
		for _, a := range c.order {
			if a.leader != a || !k.zapping[a.tgid] {
				continue
			}
			ended, err := k.groupEnded(a.tgid)
			if err != nil {
				return err
			}
			if ended {
				delete(k.zapping, a.tgid)
				continue
			}
			kept, err := k.kept(c, a)
			if err != nil {
				return err
			}
			again = again || !kept
		}
		if !again {
			break
		}
		if time.Now().After(end) {
			return errors.New("a reaper does not end")
		}
	}
	return k.freed(c)
}

// freed waits until the numbers of tasks that are listed no more are free: a task
// is unhashed before its numbers are (M5.2). Those of a group or session with a
// member stay.
func (k *kernel) freed(c *cast) error {
	kept := map[int]bool{}
	pids, err := k.proc.PIDs(nil)
	for _, pid := range pids {
		st, ok, err := k.stat(int(pid))
		if err != nil {
			return err
		}
		if ok {
			kept[int(pid)], kept[int(st.PGID)], kept[int(st.SID)] = true, true, true
		}
	}
	for _, a := range c.order {
		if a.freed || kept[a.tid] {
			continue
		}
		if a != a.leader && kept[a.tgid] {
			var st procfile.Stat
			if err := k.proc.TaskStat(uint32(a.tgid), uint32(a.tid), &st); !gone(err) {
				continue // lives
			}
		}
		if err := k.ids.awaitFree(a.tid); err != nil {
			return fmt.Errorf("number of %s: %w", a.name, err)
		}
		a.freed = true
	}
	return err
}

// kept tells that a reaper's namespace has another number in use: a task's, or that
// of a group or session with a member.
func (k *kernel) kept(c *cast, reaper *actor) (bool, error) {
	inside := map[int]bool{}
	for _, a := range c.order {
		if a != reaper && a.number(reaper.space) != noNumber {
			inside[a.numbers[0]] = true
		}
	}
	pids, err := k.proc.PIDs(nil)
	for _, pid := range pids {
		st, ok, err := k.stat(int(pid))
		if err != nil || ok && (inside[int(pid)] || inside[int(st.PGID)] || inside[int(st.SID)]) {
			return true, err
		}
	}
	return false, err
}

// settle waits until a group has ended, or one task of it if that is given, and
// everything that follows from it: nobody is half released.
func (k *kernel) settle(c *cast, group, only *actor) error {
	if only != nil && c.left(only.leader) == 1 {
		only = nil
	}
	k.zaps = k.zaps || group.number(group.space) == 1
	for end := time.Now().Add(patience); ; {
		over, err := k.over(c, group, only)
		if err != nil {
			return err
		}
		if over {
			// The end shows before its lock is given back. Once this has read the
			// list of tasks, it has been.
			unix.Kill(-(1 << 30), 0)
			if over, err = k.over(c, group, only); over || err != nil {
				k.countReaped(group, only)
				return errors.Join(err, k.emptied(c))
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the end of %s does not come", group.name)
		}
		time.Sleep(peekInterval)
	}
}

// countReaped counts the groups that were gone with their end.
func (k *kernel) countReaped(group, only *actor) {
	if _, there, _ := k.stat(group.tgid); only == nil && !there {
		k.reaped++
	}
}

// over tells whether the end of a group, or of one task, is over: it has ended, or
// is a reaper that waits and has killed its namespace, and nobody else is ending.
func (k *kernel) over(c *cast, group, only *actor) (bool, error) {
	if only != nil {
		if alive, err := k.alive(only); alive || err != nil {
			return false, err
		}
		if only != only.leader { // a thread is not listed once it is released
			var st procfile.Stat
			if err := k.proc.TaskStat(uint32(only.tgid), uint32(only.tid), &st); !gone(err) {
				return false, err
			}
		}
	} else if ended, err := k.groupEnded(group.tgid); !ended {
		if err != nil || !k.ending(group.tgid) {
			return false, err
		}
		for _, a := range c.order { // whom it has killed
			if a.leader == a && a != group && a.number(group.space) != noNumber {
				if ended, err := k.groupEnded(a.tgid); err != nil || !ended && !k.ending(a.tgid) {
					return false, err
				}
			}
		}
	}
	return k.quiet()
}

// groupEnded tells that a whole group has ended: it is released, or a zombie alone.
func (k *kernel) groupEnded(tgid int) (bool, error) {
	st, ok, err := k.stat(tgid)
	return err == nil && (!ok || st.State == 'Z' && st.NumThreads <= 1), err
}

// quiet tells that no process is on its way out.
func (k *kernel) quiet() (bool, error) {
	pids, err := k.proc.PIDs(nil)
	if err != nil {
		return false, err
	}
	for _, pid := range pids {
		st, ok, err := k.stat(int(pid))
		if err != nil || ok && (st.State == 'X' || st.Flags&procfile.PFExiting != 0 && st.State != 'Z' && !k.ending(int(pid))) {
			return false, err
		}
	}
	return true, nil
}

func (k *kernel) state() (all []process, err error) {
	pids, err := k.proc.PIDs(nil)
	if err != nil {
		return nil, err
	}
	var st procfile.Stat
	for _, pid := range pids {
		if err := k.proc.Stat(pid, &st); err != nil {
			return nil, err
		}
		p := process{PPID: int(st.PPID), PGID: int(st.PGID), SID: int(st.SID), State: "alive"}
		switch {
		case k.ending(int(pid)):
			p.State = "ending"
		case st.State == 'Z' && st.NumThreads > 1:
			p.State = "leader exited"
		case st.State == 'Z':
			p.State = "zombie"
		}
		tids, _, err := k.proc.TIDs(pid, nil)
		if err != nil {
			return nil, err
		}
		slices.Sort(tids)
		for _, tid := range tids {
			numbers, err := k.numbers(int(pid), int(tid))
			if err != nil {
				return nil, err
			}
			p.Tasks = append(p.Tasks, numbers)
			if tid == pid {
				p.Numbers = numbers
			}
		}
		if p.State == "ending" {
			p.Tasks = nil // of several threads, any can be the last
		}
		all = append(all, p)
	}
	return all, nil
}
