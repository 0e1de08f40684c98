package task

import (
	"slices"
	"testing"

	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// CASES.md B41: the parent is the one of the fork, also after it has died;
// ppid_at_fork stays beside the parent of now.
func TestRegressionB41ParentDies(t *testing.T) {
	both(t, func(s *scene) {
		parent := s.clone(1, 0)
		child := s.clone(parent, 0)
		s.exit(parent)
		s.wait(1, -1, parent, nil)
		i := s.info(child)
		want(s, "parent", i.PPID, 1)
		want(s, "parent at fork", i.PPIDAtFork, parent)
	})
}

// CASES.md B42: a fork without an exec makes a record with its parent's image, and
// children of that have a known parent.
func TestRegressionB42ForkWithoutExec(t *testing.T) {
	s := newScene(t)
	shell := s.clone(1, 0)
	s.errno("", s.e.Exec(shell, comm("sh")), nil)
	sub := s.clone(shell, 0)
	work := s.clone(sub, 0)
	for _, tid := range []uint32{sub, work} {
		i := s.info(tid)
		want(t, "name", string(i.Name()), "sh")
	}
	if got := s.e.Ancestors(work, make([]uint32, 0, 8)); !slices.Equal(got, []uint32{sub, shell, 1}) {
		t.Errorf("ancestors: got %v, want [%d %d 1]", got, sub, shell)
	}
	if got := s.e.Ancestors(work, make([]uint32, 0, 2)); !slices.Equal(got, []uint32{sub, shell}) {
		t.Errorf("ancestors, where there is room for two: got %v", got)
	}
}

// CASES.md B53: the counters of a process are the sum over its threads, and do not
// fall when they end, its leader included.
func TestRegressionB53CountersNeverFall(t *testing.T) {
	both(t, func(s *scene) {
		leader := s.clone(1, 0)
		last := Usage{}
		check := func(what string) {
			s.Helper()
			now, ok := s.e.ProcessUsage(leader)
			if !ok || now.Switches < last.Switches || now.UtimeNs < last.UtimeNs || now.StimeNs < last.StimeNs {
				s.Errorf("%s: counters went from %+v to %+v", what, last, now)
			}
			last = now
		}
		var threads []uint32
		for range 20 {
			threads = append(threads, s.clone(leader, ThreadFlags))
		}
		use := Usage{UtimeNs: 5, StimeNs: 3, Switches: 7}
		for _, tid := range append(threads, leader) {
			s.errno("", s.e.Account(tid, use), nil)
			check("used")
		}
		s.exit(leader)
		check("the leader has exited")
		for _, tid := range threads {
			s.exit(tid)
			check("a thread has exited")
		}
		if all := (Usage{UtimeNs: 21 * 5, StimeNs: 21 * 3, Switches: 21 * 7}); last != all {
			s.Errorf("in the end: got %+v, want %+v", last, all)
		}
		got, err := s.e.Wait(1, -1, unix.WNOHANG)
		if err != nil || got.Usage != last {
			s.Errorf("wait told %+v, %v; want %+v", got.Usage, err, last)
		}
	})
}

// CASES.md B69: a task has a number in each namespace, and is found by the one
// that its own namespace shows.
func TestRegressionB69NumbersOfContainer(t *testing.T) {
	s := newScene(t)
	init := s.clone(1, unix.CLONE_NEWPID)
	sleep := s.clone(init, 0)
	pids, root := s.e.Pids(), s.e.Namespace()
	slot := root.Find(sleep)
	if got := pids.Numbers(slot, root, nil); !slices.Equal(got, []uint32{sleep, 2}) {
		t.Errorf("NSpid: got %v, want [%d 2]", got, sleep)
	}
	ns := pids.NamespaceOf(slot)
	var h table.Hot
	if !ns.Read(2, &h) || h.TID != sleep {
		t.Errorf("task 2 of the container: got task %d, want %d", h.TID, sleep)
	}
	want(t, "namespace of the host's init", pids.NamespaceOf(root.Find(1)), root)
	s.wait(init, 2, 0, nil)
	s.exit(sleep)
	s.wait(init, int32(sleep), 0, unix.ECHILD) // the host's number means nothing there
	s.wait(init, 2, 2, nil)
}

// CASES.md B70: in nested namespaces a child's number is its own namespace's, not
// its parent's.
func TestRegressionB70NestedNamespaces(t *testing.T) {
	s := newScene(t)
	outer := s.clone(1, unix.CLONE_NEWPID)
	inner := s.clone(outer, unix.CLONE_NEWPID)
	sleep := s.clone(inner, 0)
	pids, root := s.e.Pids(), s.e.Namespace()
	for _, c := range []struct {
		tid  uint32
		want []uint32
	}{{outer, []uint32{outer, 1}}, {inner, []uint32{inner, 2, 1}}, {sleep, []uint32{sleep, 3, 2}}} {
		if got := pids.Numbers(root.Find(c.tid), root, nil); !slices.Equal(got, c.want) {
			t.Errorf("NSpid of %d: got %v, want %v", c.tid, got, c.want)
		}
		want(t, "level", s.info(c.tid).Level, uint32(len(c.want)-1))
	}
}

// CASES.md B71: orphans go to the nearest subreaper, else to the namespace's
// reaper; the thread that created a process is not its parent, its group is.
func TestRegressionB71Orphans(t *testing.T) {
	both(t, func(s *scene) {
		sub := s.clone(1, 0)
		s.errno("", s.e.SetSubreaper(sub, true), nil)
		middle := s.clone(sub, 0)
		thread := s.clone(middle, ThreadFlags)
		child := s.clone(thread, 0)
		want(s, "parent of a thread's child", s.info(child).PPID, middle)
		grandchild := s.clone(child, 0)
		s.exit(thread)
		want(s, "parent when the creator has gone", s.info(child).PPID, middle)
		s.exit(middle)
		want(s, "parent when its group has gone", s.info(child).PPID, sub)
		s.exit(child)
		want(s, "parent of the grandchild", s.info(grandchild).PPID, sub)
		s.wait(sub, -1, middle, nil)
		s.wait(sub, -1, child, nil)
		s.errno("", s.e.SetSubreaper(sub, false), nil)
		s.exit(sub)
		want(s, "parent without a subreaper", s.info(grandchild).PPID, 1)

		// Inside a namespace the search ends at its border.
		outer := s.clone(1, 0)
		s.errno("", s.e.SetSubreaper(outer, true), nil)
		init := s.clone(outer, unix.CLONE_NEWPID)
		a := s.clone(init, 0)
		b := s.clone(a, 0)
		s.exit(a)
		want(s, "parent inside a namespace", s.info(b).PPID, init)

		// A zombie goes along, and at once where its new parent does not wait.
		c := s.clone(init, 0)
		d := s.clone(c, 0)
		s.exit(d)
		s.errno("", s.e.NoChildWait(init, true), nil)
		s.exit(c)
		s.there(d, false)
		s.there(c, false)
	})
}
