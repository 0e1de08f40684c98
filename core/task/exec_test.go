package task

import (
	"testing"

	"github.com/kpidd/kpidd/core/table"
)

// CASES.md B48: EXIT of the leader, then EXEC of the same number, and no exit of
// the thread that called execve.
func TestExecByThreadThatIsNoLeader(t *testing.T) {
	w := newWorld(t)
	w.fork(1, 1, 0)
	w.fork(10, 10, 1)
	w.fork(20, 20, 10) // a child
	w.fork(11, 10, 1)
	w.fork(12, 10, 1) // execs
	w.fork(13, 10, 1)
	before := w.task(10)
	w.exit(11, 10)
	w.exit(10, 10)
	w.exit(13, 10)
	want(t, "exec", w.exec(10, "new"), Execed)
	h := w.task(10)
	want(t, "start", h.StartTicks, before.StartTicks)
	want(t, "start_ns", h.StartNs, before.StartNs)
	want(t, "gen", h.Gen, before.Gen)
	want(t, "parent", h.PPID, 1)
	want(t, "name", string(h.Name()), "new")
	want(t, "threads", h.Threads, 1)
	w.alive(10)
	for tid := uint32(11); tid <= 13; tid++ {
		w.gone(tid)
	}
	want(t, "deaths", w.w.Header().Deaths, 0)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 0)
	want(t, "parent of the child", w.task(20).PPID, 10)
	want(t, "exit at last", w.exit(10, 10), Ended)
}

// The thread that execs was never told of: the leader's exit seemed the last.
func TestExecRevivesEndedProcess(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	gen := w.task(10).Gen
	want(t, "exit", w.exit(10, 10), Ended)
	want(t, "exec", w.exec(10, "new"), Execed)
	w.alive(10)
	want(t, "gen", w.task(10).Gen, gen)
	want(t, "repaired", w.e.Stats().Repaired.Load(), 1)
	want(t, "zombies", w.e.Zombies(), 0)
	want(t, "waits for a check", w.e.Unverified(), 1)
	want(t, "exit", w.exit(10, 10), Ended)
}

func TestObserveExec(t *testing.T) {
	w := newWorld(t)
	w.fork(10, 10, 1)
	w.fork(11, 10, 1)
	at := w.step()
	w.fork(12, 10, 1) // newer than the exec
	w.rename(12, "kept")
	want(t, "exec of an older image", w.execAt(10, "new", at), Execed)
	w.gone(11)
	want(t, "a thread of the new image", w.name(12), "kept")
	want(t, "exec older than the life", w.execAt(10, "old", 1), Nothing)
	want(t, "name", w.name(10), "new")
	want(t, "exec without a name", w.exec(10, ""), Execed)
	want(t, "name", w.name(10), "new")
	want(t, "orphans", w.e.Stats().Orphans.Load(), 0)
	want(t, "exec of nobody", w.exec(77, "x"), Nothing)
	want(t, "orphans", w.e.Stats().Orphans.Load(), 1)
	w.fork(12, 10, 1)
	want(t, "exec of a thread's number", w.exec(12, "x"), Nothing)
	want(t, "execs", w.w.Header().Execs, 2)
}

// A kernel thread's child that execs is none.
func TestExecEndsKernelThread(t *testing.T) {
	w := newWorld(t)
	kthreadd := w.seen(2, 2, 0, 0, "kthreadd")
	kthreadd.KThread = true
	w.merge(kthreadd)
	w.fork(10, 10, 2)
	want(t, "flag", w.task(10).Flags&table.FlagKThread, table.FlagKThread)
	w.exec(10, "modprobe")
	want(t, "flag", w.task(10).Flags&table.FlagKThread, 0)
}

// The proc connector tells the leader's exit after the exec of the thread that
// took its number. The process lives on; a real exit soon afterwards is found by
// the check.
func TestExitToldAfterExec(t *testing.T) {
	for _, c := range []struct {
		name  string
		state byte
		want  ChangeType
	}{{"the old leader's", 'S', Nothing}, {"the process's own", 'Z', Ended}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.fork(10, 10, 1)
			w.fork(11, 10, 1)
			start := w.ticks()
			want(t, "exec", w.exec(10, "new"), Execed)
			want(t, "exit", w.exit(10, 10), Nothing)
			w.alive(10)
			var told Change
			w.now += 2 * verifyAfterNs
			check, due := w.e.NextCheck(w.now)
			if !due || check.TID != 10 {
				t.Fatalf("check: got task %d, %v; want 10", check.TID, due)
			}
			seen := w.seen(10, 10, 1, start, "new")
			seen.State = c.state
			w.e.Verified(&check, &seen, w.now, &told)
			want(t, "told by the check", told.Type, c.want)
			if c.want == Ended {
				w.zombie(10)
				return
			}
			w.alive(10)
			want(t, "exit at last", w.exit(10, 10), Ended)
		})
	}
}
