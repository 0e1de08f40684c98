package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

// scene is an engine in which the tests ask for things.
type scene struct {
	*testing.T
	e *Engine
}

func newScene(t *testing.T) *scene { return &scene{t, newRequest(t)} }

// both runs a test with the release of M5 and with the old one.
func both(t *testing.T, do func(s *scene)) {
	for _, how := range []lab.Release{lab.Deferred, lab.UnderLock} {
		t.Run(how.String(), func(t *testing.T) {
			s := newScene(t)
			s.e.SetBaseline(how)
			do(s)
			s.settled()
		})
	}
}

// settled checks the invariants when nothing waits any more.
func (s *scene) settled() {
	s.Helper()
	if err := s.e.Pids().Settle(context.Background()); err != nil {
		s.Fatal(err)
	}
	checkInvariants(s.T, s.e, between)
	checkSlotsUsed(s.T, s.e, int(s.e.Namespace().Users()))
}

func (s *scene) clone(tid uint32, flags uint64, numbers ...uint32) uint32 {
	s.Helper()
	child, err := s.e.Clone(tid, &CloneArgs{Flags: flags, SetTID: numbers})
	if err != nil {
		s.Fatal(err)
	}
	return child
}

func (s *scene) errno(what string, got, want error) {
	s.Helper()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		s.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (s *scene) exit(tid uint32) {
	s.Helper()
	s.errno(fmt.Sprintf("exit of %d", tid), s.e.Exit(tid, Exited(3)), nil)
}

func (s *scene) wait(tid uint32, id int32, want uint32, errno error) {
	s.Helper()
	got, err := s.e.Wait(tid, id, unix.WNOHANG)
	if got.PID != want || !errors.Is(err, errno) || (err == nil) != (errno == nil) {
		s.Errorf("wait for %d by %d: got %d, %v; want %d, %v", id, tid, got.PID, err, want, errno)
	}
}

func (s *scene) info(tid uint32) (i Info) {
	s.Helper()
	if !s.e.Info(tid, &i) {
		s.Fatalf("task %d is not there", tid)
	}
	return i
}

func (s *scene) there(tid uint32, want bool) {
	s.Helper()
	if _, ok := s.e.Task(tid); ok != want {
		s.Errorf("task %d: there %v, want %v", tid, ok, want)
	}
}

func TestCloneErrors(t *testing.T) {
	s := newScene(t)
	user := s.clone(1, 0)
	s.errno("become user 7", s.e.SetUID(user, 7, 7), nil)
	leader := s.clone(1, 0)
	thread := s.clone(leader, ThreadFlags)
	away := s.clone(1, 0)
	if _, err := s.e.Unshare(away); err != nil {
		t.Fatal(err)
	}
	zombie := s.clone(1, 0)
	s.exit(zombie)
	for _, c := range []struct {
		name    string
		tid     uint32
		flags   uint64
		numbers []uint32
		errno   error
	}{
		{"nobody", 99, 0, nil, unix.ESRCH},
		{"a zombie", zombie, 0, nil, unix.ESRCH},
		{"CLONE_THREAD without CLONE_SIGHAND", leader, unix.CLONE_THREAD | unix.CLONE_VM, nil, unix.EINVAL},
		{"CLONE_SIGHAND without CLONE_VM", leader, unix.CLONE_SIGHAND, nil, unix.EINVAL},
		{"a new mount namespace that shares its file system", leader, unix.CLONE_NEWNS | unix.CLONE_FS, nil, unix.EINVAL},
		{"a new user namespace that shares its file system", leader, unix.CLONE_NEWUSER | unix.CLONE_FS, nil, unix.EINVAL},
		{"a sibling of the reaper", 1, unix.CLONE_PARENT, nil, unix.EINVAL},
		{"a thread in a new namespace", leader, ThreadFlags | unix.CLONE_NEWPID, nil, unix.EINVAL},
		{"a thread after unshare", away, ThreadFlags, nil, unix.EINVAL},
		{"a namespace after unshare", away, unix.CLONE_NEWPID, nil, unix.EINVAL},
		{"a namespace, not privileged", user, unix.CLONE_NEWPID, nil, unix.EPERM},
		{"a number, not privileged", user, 0, []uint32{50}, unix.EPERM},
		{"a number that is none, not privileged", user, 0, []uint32{0}, unix.EINVAL},
		{"more numbers than levels", 1, 0, []uint32{50, 51}, unix.EINVAL},
		{"a number that is taken", 1, 0, []uint32{thread}, unix.EEXIST},
		{"2 in a namespace without 1", away, 0, []uint32{2}, unix.EINVAL},
	} {
		_, err := s.e.Clone(c.tid, &CloneArgs{Flags: c.flags, SetTID: c.numbers})
		s.errno(c.name, err, c.errno)
	}
	if _, err := s.e.Start(comm("again")); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second first process: got %v, want EEXIST", err)
	}
	s.settled()
}

// M1.9: ENOSPC beyond 32 levels.
func TestCloneBeyondLevels(t *testing.T) {
	s := newScene(t)
	tid := uint32(1)
	for range pid.LevelsMax {
		tid = s.clone(tid, unix.CLONE_NEWPID)
	}
	if got := s.info(tid).Level; got != pid.LevelsMax {
		t.Errorf("level: got %d, want %d", got, pid.LevelsMax)
	}
	_, err := s.e.Clone(tid, &CloneArgs{Flags: unix.CLONE_NEWPID})
	s.errno("level 33", err, unix.ENOSPC)
	s.errno("end of them all", s.e.ExitGroup(1, 0), nil)
	s.settled()
	want(t, "namespaces that are left", s.e.Pids().Namespaces(), 1)
}

// M1.9: when a namespace's reaper dies, all in it is killed, and nothing is
// allocated in it any more: ENOMEM.
func TestDeathOfReaper(t *testing.T) {
	both(t, func(s *scene) {
		outside := s.clone(1, 0)
		ns, err := s.e.Unshare(outside)
		if err != nil {
			s.Fatal(err)
		}
		reaper := s.clone(outside, 0)
		child := s.clone(reaper, 0)
		thread := s.clone(child, ThreadFlags)
		deep := s.clone(child, unix.CLONE_NEWPID)
		injected := s.clone(outside, 0) // its parent is outside
		zombie := s.clone(reaper, 0)
		s.exit(zombie)
		s.exit(reaper)
		for _, tid := range []uint32{child, thread, deep, zombie} {
			s.there(tid, false)
		}
		s.errno("exit of a reaper that waits", s.e.Exit(reaper, 0), unix.ESRCH)
		s.errno("end of a reaper that waits", s.e.ExitGroup(reaper, 0), unix.ESRCH)
		s.errno("call of a reaper that waits", s.e.SetSubreaper(reaper, true), unix.ESRCH)
		got, err := s.e.Wait(outside, int32(reaper), unix.WNOHANG)
		if err != nil || got.PID != 0 {
			s.Errorf("wait for the reaper before its namespace is empty: got %+v, %v", got, err)
		}
		got, err = s.e.Wait(outside, -1, unix.WNOHANG)
		if err != nil || got.TGID != injected || got.Status != Signaled(unix.SIGKILL) {
			s.Errorf("wait for what was killed: got %+v, %v", got, err)
		}
		got, err = s.e.Wait(outside, -1, unix.WNOHANG)
		if err != nil || got.TGID != reaper || got.Status != Exited(3) {
			s.Errorf("wait for the reaper: got %+v, %v", got, err)
		}
		want(s, "closed", ns.Closed(), true)
		_, err = s.e.Clone(outside, &CloneArgs{})
		s.errno("clone into a dead namespace", err, unix.ENOMEM)
		_, err = s.e.Clone(outside, &CloneArgs{SetTID: []uint32{5}})
		s.errno("a number in a dead namespace", err, unix.ENOMEM)
		s.errno("back home", s.e.SetNS(outside, s.e.Namespace()), nil)
		s.clone(outside, 0)
	})
}

// M5.1, M5.2, M5.3: what is left is done once for each task, in order, before its
// object is freed, and not under the lock.
func TestLeftover(t *testing.T) {
	both(t, func(s *scene) {
		var log []string
		deferred := s.e.baseline == lab.Deferred
		s.e.SetHooks(Hooks{
			Flush: func(ref pid.Ref) {
				if got := s.e.Pids().NamespaceOf(ref.Slot); got != s.e.Namespace() {
					s.Errorf("slot %d was freed before its entries were flushed", ref.Slot)
				}
				log = append(log, fmt.Sprintf("flush %d", ref.Gen))
			},
			Sink: func(r Released) {
				free := s.e.mu.TryLock()
				if free {
					s.e.mu.Unlock()
				}
				if free != deferred {
					s.Errorf("sink of %d: lock free %v, want %v", r.TID, free, deferred)
				}
				log = append(log, fmt.Sprintf("sink %d of %d: %v", r.TID, r.TGID, r.Status))
			},
		})
		leader := s.clone(1, 0)                // generation 2
		thread := s.clone(leader, ThreadFlags) // 3
		last := s.clone(leader, ThreadFlags)   // 4
		s.errno("", s.e.IgnoreChildren(1, true), nil)
		s.exit(thread)
		s.exit(leader)
		want(s, "done so far", strings.Join(log, ", "), "flush 3, sink 3 of 2: 768")
		log = nil
		// M5.4: the last thread beside the zombie leader, whose parent ignores SIGCHLD:
		// both go, in two rounds.
		s.exit(last)
		want(s, "done at last", strings.Join(log, ", "), "flush 4, sink 4 of 2: 768, flush 2, sink 2 of 2: 768")
		s.there(leader, false)
		s.wait(1, -1, 0, unix.ECHILD)
		want(s, "counted", s.e.Stats().Deferred.Load(), 3)
	})
}

// M5.4: only when the last thread has gone is the leader's parent told.
func TestLeaderIsToldAtLast(t *testing.T) {
	both(t, func(s *scene) {
		leader := s.clone(1, 0)
		thread := s.clone(leader, ThreadFlags)
		child := s.clone(thread, 0)
		s.exit(leader)
		s.wait(1, -1, 0, nil)
		want(s, "flags", s.info(leader).Flags, table.FlagExitedLeader)
		want(s, "parent of the child while a thread lives", s.info(child).PPID, leader)
		s.exit(thread)
		want(s, "parent of the child", s.info(child).PPID, 1)
		s.wait(1, int32(leader), leader, nil)
		s.wait(1, int32(leader), 0, unix.ECHILD)
	})
}

// M1.6, M5.3: a number is kept while it is a group's or a session's, without a
// task; whoever leaves last frees it.
func TestNumberOfSessionIsKept(t *testing.T) {
	both(t, func(s *scene) {
		leader := s.clone(1, 0)
		sid, err := s.e.SetSID(leader)
		s.errno("setsid", err, nil)
		want(s, "session", sid, leader)
		child := s.clone(leader, 0)
		s.exit(leader)
		s.wait(1, -1, leader, nil)
		s.there(leader, false)
		if s.e.Namespace().Find(leader) == 0 {
			s.Error("the session's number was freed")
		}
		before := s.e.Namespace().Stats().StaleTags
		w := s.e.Namespace().Leaders(0)
		var h table.Hot
		var listed []uint32
		for w.Next(&h) {
			listed = append(listed, h.TID)
		}
		if !slices.Equal(listed, []uint32{1, child}) || s.e.Namespace().Stats().StaleTags != before+1 {
			s.Errorf("listed %v, want [1 %d], with one stale tag", listed, child)
		}
		_, err = s.e.Clone(1, &CloneArgs{SetTID: []uint32{leader}})
		s.errno("the session's number, requested", err, unix.EEXIST)
		want(s, "session of the child", s.info(child).SID, leader)
		s.errno("the child leaves the group", s.e.SetPGID(child, 0, 0), nil)
		s.exit(child)
		s.wait(1, -1, child, nil)
		s.settled()
		want(s, "slot of the session's number", s.e.Namespace().Find(leader), 0)
	})
}

// M5.6: a task found in a section stays readable to its end.
func TestReleasedTaskStaysReadable(t *testing.T) {
	s := newScene(t)
	r := s.e.Register("test")
	defer r.Unregister()
	tid := s.clone(1, 0)
	before, _ := s.e.Task(tid)
	r.Enter()
	ref, ok := r.Find(s.e.Namespace(), tid)
	want(t, "found", ok, true)
	s.exit(tid)
	s.wait(1, -1, tid, nil)
	for range 5000 {
		processPair(s.e, 1)
	}
	var h table.Hot
	if !r.Get(ref, &h) {
		t.Fatal("the task is not readable inside the section")
	}
	before.TID, before.State, before.Flags = 0, stateDead, table.FlagZombie
	want(t, "record", h, before)
	if _, ok := r.Find(s.e.Namespace(), tid); ok {
		t.Error("a released task is found")
	}
	r.Exit()
	s.settled()
}

// Exec by a thread that is no leader: it takes the leader's slot, number and start;
// every other task goes, and what they used stays counted.
func TestExecRequest(t *testing.T) {
	both(t, func(s *scene) {
		leader := s.clone(1, 0)
		thread := s.clone(leader, ThreadFlags)
		other := s.clone(leader, ThreadFlags)
		s.errno("", s.e.SetUID(thread, Same, 9), nil)
		for _, tid := range []uint32{leader, thread, other} {
			s.errno("", s.e.Account(tid, Usage{Switches: uint64(tid)}), nil)
		}
		s.errno("", s.e.NoChildWait(leader, true), nil)
		s.errno("", s.e.IgnoreChildren(leader, true), nil)
		before := s.info(leader)
		s.exit(leader)
		s.errno("exec by an exited leader", s.e.Exec(leader, comm("x")), unix.ESRCH)
		s.errno("exec", s.e.Exec(thread, comm("new")), nil)
		s.there(thread, false)
		s.there(other, false)
		i := s.info(leader)
		want(s, "generation", i.Gen, before.Gen)
		want(s, "start", i.StartNs, before.StartNs)
		want(s, "name", string(i.Name()), "new")
		want(s, "threads", i.Threads, 1)
		want(s, "flags", i.Flags, 0)
		want(s, "user", i.EUID, 9)
		want(s, "counted", i.Usage.Switches, uint64(leader+thread+other))
		r := s.e.recs.at(s.e.find(leader))
		want(s, "flags over exec", r.flags&(ignores|noWait|newImage), ignores|newImage)
		s.exit(leader)
		s.wait(1, -1, leader, nil)
	})
}

func TestVfork(t *testing.T) {
	both(t, func(s *scene) {
		parent := s.clone(1, 0)
		for _, end := range []func(child uint32){
			func(child uint32) { s.errno("exec", s.e.Exec(child, comm("x")), nil) },
			s.exit,
		} {
			child := s.clone(parent, unix.CLONE_VFORK|unix.CLONE_VM)
			_, err := s.e.Clone(parent, &CloneArgs{})
			s.errno("clone by one that waits", err, unix.EBUSY)
			_, err = s.e.SetSID(parent)
			s.errno("setsid by one that waits", err, unix.EBUSY)
			_, err = s.e.Wait(parent, -1, unix.WNOHANG)
			s.errno("wait by one that waits", err, unix.EBUSY)
			s.errno("setpgid by one that waits", s.e.SetPGID(parent, 0, 0), unix.EBUSY)
			s.errno("exec by one that waits", s.e.Exec(parent, comm("x")), unix.EBUSY)
			end(child)
			s.clone(parent, 0)
		}
		s.clone(parent, unix.CLONE_VFORK)
		s.errno("killed while it waits", s.e.ExitGroup(parent, Signaled(unix.SIGKILL)), nil)
	})
}

// Wait without WNOHANG sleeps until a child ends, until there is none, or until
// the caller is gone.
func TestWaitBlocks(t *testing.T) {
	s := newScene(t)
	parent := s.clone(1, 0)
	child := s.clone(parent, 0)
	thread := s.clone(parent, ThreadFlags)
	type answer struct {
		Waited
		err error
	}
	ask := func(tid uint32) chan answer {
		c := make(chan answer, 1)
		go func() {
			got, err := s.e.Wait(tid, -1, 0)
			c <- answer{got, err}
		}()
		for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
			s.e.lock()
			waiting = s.e.waiting
			s.e.unlock()
		}
		return c
	}
	c := ask(parent)
	select {
	case got := <-c:
		t.Fatalf("wait returned %+v while the child lives", got)
	case <-time.After(10 * time.Millisecond):
	}
	s.exit(child)
	if got := <-c; got.err != nil || got.PID != child {
		t.Errorf("wait: got %+v, want %d", got, child)
	}
	s.clone(parent, 0)
	c = ask(thread)
	s.exit(thread)
	if got := <-c; !errors.Is(got.err, unix.ESRCH) {
		t.Errorf("wait of a thread that is gone: got %+v, want ESRCH", got)
	}
	child = s.clone(parent, unix.CLONE_PARENT)
	s.exit(child)
	s.wait(1, -1, child, nil) // a sibling of parent
	s.settled()
}

func TestWaitOptions(t *testing.T) {
	s := newScene(t)
	a, b := s.clone(1, 0), s.clone(1, 0)
	s.errno("", s.e.SetPGID(b, 0, 0), nil)
	s.errno("", s.e.SetPGID(1, 0, 0), nil)
	s.errno("", s.e.SetPGID(1, a, 1), nil)
	s.exit(b)
	s.exit(a)
	peek := func(id int32, want uint32) {
		t.Helper()
		got, err := s.e.Wait(1, id, unix.WNOHANG|unix.WNOWAIT)
		if err != nil || got.PID != want {
			t.Errorf("WNOWAIT for %d: got %+v, %v; want %d", id, got, err, want)
		}
	}
	peek(-1, a) // the oldest first
	peek(-1, a)
	peek(int32(b), b)
	peek(-int32(b), b)
	peek(0, a)
	s.wait(1, -99, 0, unix.ECHILD)
	s.wait(1, -1<<31, 0, unix.ESRCH)
	_, err := s.e.Wait(1, -1, 1<<20)
	s.errno("unknown option", err, unix.EINVAL)
	s.wait(99, -1, 0, unix.ESRCH)
	s.wait(1, -int32(b), b, nil)
	s.wait(1, 0, a, nil)
	s.wait(1, -1, 0, unix.ECHILD)
	s.settled()
}

func TestSetPGIDErrors(t *testing.T) {
	s := newScene(t)
	shell := s.clone(1, 0)
	_, err := s.e.SetSID(shell)
	s.errno("setsid", err, nil)
	_, err = s.e.SetSID(shell)
	s.errno("setsid again", err, unix.EPERM)
	job := s.clone(shell, 0)
	thread := s.clone(job, ThreadFlags)
	grandchild := s.clone(job, 0)
	image := s.clone(shell, 0)
	s.errno("", s.e.Exec(image, comm("x")), nil)
	away := s.clone(shell, 0)
	_, err = s.e.SetSID(away)
	s.errno("setsid of a child", err, nil)
	for _, c := range []struct {
		name          string
		tid, nr, pgid uint32
		errno         error
	}{
		{"by nobody", 99, 0, 0, unix.ESRCH},
		{"of nobody", shell, 99, 0, unix.ESRCH},
		{"of a thread", shell, thread, 0, unix.EINVAL},
		{"of the parent", job, shell, 0, unix.ESRCH},
		{"of a grandchild", shell, grandchild, 0, unix.ESRCH},
		{"of a session's leader", shell, 0, 0, unix.EPERM},
		{"of a child that has called exec", shell, image, 0, unix.EACCES},
		{"of a child in another session", shell, away, 0, unix.EPERM},
		{"to a group that is none", shell, job, 99, unix.EPERM},
		{"to a process without a group", shell, job, job + 2, unix.EPERM},
		{"to a group of another session", shell, job, away, unix.EPERM},
		{"to a group of its own", shell, job, 0, nil},
		{"again", shell, job, job, nil},
		{"of itself, by a thread", thread, 0, shell, nil},
		{"to a group that nobody is of any more", job, 0, 0, nil},
	} {
		s.errno(c.name, s.e.SetPGID(c.tid, c.nr, c.pgid), c.errno)
	}
	// A process whose number is a group's cannot lead a session.
	s.errno("", s.e.SetPGID(shell, grandchild, 0), unix.ESRCH)
	_, err = s.e.SetSID(job)
	s.errno("setsid of a group's leader", err, unix.EPERM)
	s.settled()
}

func TestCredentials(t *testing.T) {
	s := newScene(t)
	tid := s.clone(1, 0)
	s.errno("as root", s.e.SetUID(tid, 5, 6), nil)
	s.errno("as root", s.e.SetGID(tid, 7, 8), unix.EPERM)
	s.errno("to the real one", s.e.SetUID(tid, Same, 5), nil)
	s.errno("to another", s.e.SetUID(tid, Same, 6), unix.EPERM)
	s.errno("to another", s.e.SetUID(tid, 0, Same), unix.EPERM)
	child := s.clone(tid, 0)
	i := s.info(child)
	want(t, "user of the child", i.UID, 5)
	want(t, "effective user of the child", i.EUID, 5)
	s.errno("nobody", s.e.SetUID(99, 1, 1), unix.ESRCH)
	s.errno("root's groups", s.e.SetGID(1, 7, 8), nil)
	i = s.info(1)
	want(t, "group", i.GID, 7)
	want(t, "effective group", i.EGID, 8)
}

func TestSetNS(t *testing.T) {
	s := newScene(t)
	a := s.clone(1, 0)
	ns, err := s.e.Unshare(a)
	s.errno("unshare", err, nil)
	_, err = s.e.Unshare(a)
	s.errno("unshare again", err, unix.EINVAL)
	init := s.clone(a, 0)
	s.errno("enter one below", s.e.SetNS(1, ns), nil)
	in := s.clone(1, 0)
	want(t, "level", s.info(in).Level, 1)
	want(t, "parent", s.info(in).PPID, 1)
	s.errno("enter one above", s.e.SetNS(init, s.e.Namespace()), unix.EINVAL)
	s.errno("leave", s.e.SetNS(1, s.e.Namespace()), nil)
	want(t, "level", s.info(s.clone(1, 0)).Level, 0)
	s.errno("", s.e.SetUID(a, 4, 4), nil)
	s.errno("not privileged", s.e.SetNS(a, ns), unix.EPERM)
	s.errno("nobody", s.e.SetNS(99, ns), unix.ESRCH)
	s.errno("all end", s.e.ExitGroup(1, 0), nil)
	s.settled()
	want(t, "namespaces that are left", s.e.Pids().Namespaces(), 1)
}

// Misuse of a task that is gone, by any door, is an error.
func TestRequestsOfNobody(t *testing.T) {
	s := newScene(t)
	gone := s.clone(1, 0)
	s.exit(gone)
	s.wait(1, -1, gone, nil)
	_, errSID := s.e.SetSID(gone)
	_, errNS := s.e.Unshare(gone)
	_, errWait := s.e.Wait(gone, -1, unix.WNOHANG)
	for what, err := range map[string]error{
		"exit": s.e.Exit(gone, 0), "exit of the group": s.e.ExitGroup(gone, 0), "exec": s.e.Exec(gone, comm("x")),
		"setsid": errSID, "setpgid": s.e.SetPGID(gone, 0, 0), "unshare": errNS, "wait": errWait,
		"subreaper": s.e.SetSubreaper(gone, true), "account": s.e.Account(gone, Usage{}), "rename": s.e.Rename(gone, comm("x")),
	} {
		s.errno(what, err, unix.ESRCH)
	}
	if _, ok := s.e.ProcessUsage(gone); ok {
		t.Error("the counters of nobody were given")
	}
}

// Times are measured while that is switched on.
func TestMeasure(t *testing.T) {
	s := newScene(t)
	s.e.Measure(true)
	threadPair(s.e, s.clone(1, 0))
	if got := s.e.HoldNs(0.99); got == 0 {
		t.Error("no hold of the lock was measured")
	}
	if got := s.e.DeferredNs(0.99); got == 0 {
		t.Error("no work after the lock was measured")
	}
	s.e.Measure(false)
	n := s.e.hold.held.N()
	threadPair(s.e, 1)
	want(t, "holds that were measured", s.e.hold.held.N(), n)
}
