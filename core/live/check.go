package live

import (
	"errors"

	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
	"golang.org/x/sys/unix"
)

// What a turn may spend on checks: a hundredth of the time since the last one
// for estimates, the same for zombies.
const (
	checkShare    = 100
	zombieProbeNs = 250 // of one kill(2) with signal 0
)

// busyNsMax is the longest time since the last turn that a budget counts: after a
// stop, or at the start, the events come first.
const busyNsMax = 1e9

// sinceLast is how long ago the last turn was, as budgets count it.
func sinceLast(now, last uint64) uint64 {
	if last == 0 {
		return 0
	}
	return min(now-min(last, now), busyNsMax)
}

// checkEstimates looks up in /proc what events could only estimate: exact start,
// parent after a re-parenting, and tasks that may be gone. A task's own stat file
// is read, never its process's, whose cost grows with the threads.
func (f *Follower) checkEstimates() {
	begin := table.MonotonicNs()
	budget := sinceLast(begin, f.lastTurn) / checkShare
	for now := begin; now-begin <= budget; {
		check, ok := f.Engine.NextCheck(now)
		if !ok {
			return
		}
		err := f.Proc.TaskStat(check.TGID, check.TID, &f.stat)
		st := &f.stat
		switch {
		case err == nil:
			seen := task.Seen{
				TID: check.TID, TGID: check.TGID, PPID: st.PPID, StartTicks: st.StartTicks, State: st.State,
				KThread: st.Flags&procfile.PFKThread != 0, Exiting: st.Flags&procfile.PFExiting != 0,
				Comm: st.Comm, AtNs: now,
			}
			f.Engine.Verified(&check, &seen, now, &f.change)
		case errors.Is(err, procfile.ErrGone):
			f.Engine.Verified(&check, nil, now, &f.change)
		default:
			f.logf("check a task: %v", err)
			f.Engine.Postpone(&check, now)
			f.change.Type = task.Nothing
		}
		if f.change.Type != task.Nothing {
			f.tell(&f.change, &Event{TimeNs: now})
		}
		now = table.MonotonicNs()
	}
}

// reapZombies asks the kernel which ended processes were reaped: no source but
// bpf tells.
func (f *Follower) reapZombies(now uint64) {
	if f.info.Tells&TellsFree != 0 {
		return
	}
	most := sinceLast(now, f.lastTurn) / checkShare / zombieProbeNs
	f.Engine.ReapGone(int(max(most, 16)), now, numberGone)
}

// sweepShare is the part of its time, one in so many, that the follower gives to
// asking after tasks that nothing makes it doubt.
const sweepShare = 1000

// sweep asks the kernel after tasks whose exit no record may have told: some
// kernels leave out records of some tasks.
func (f *Follower) sweep(now uint64) {
	most := (now - min(f.lastTurn, now)) / sweepShare / zombieProbeNs
	f.Engine.Sweep(int(min(max(most, 16), 4096)), now, taskGone)
}

func taskGone(tgid, tid uint32) bool {
	return errors.Is(unix.Tgkill(int(tgid), int(tid), 0), unix.ESRCH)
}

func numberGone(pid uint32) bool {
	return errors.Is(unix.Kill(int(pid), 0), unix.ESRCH)
}
