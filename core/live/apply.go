package live

import (
	"errors"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
)

// apply applies one event to the engine and tells the feed what changed. In
// steady state it allocates nothing.
func (f *Follower) apply(ev *Event) {
	c := &f.change
	c.Type = task.Nothing
	boot := ev.TimeNs + f.bootOffset
	switch ev.Kind {
	case Fork:
		fork := task.ForkEvent{
			TID: ev.TID, TGID: ev.PID, PPID: ev.PPID, CreatorTID: ev.PTID,
			ParentKnown: ev.Flags&RealParent != 0, AtNs: ev.TimeNs, BootNs: boot,
		}
		if err := f.Engine.ObserveFork(&fork, c); errors.Is(err, table.ErrFull) {
			f.tableFull(err)
		}
	case Exec:
		comm, known := ev.Comm, ev.Flags&HasComm != 0
		if !known {
			known = f.Proc.Comm(ev.PID, ev.PID, &comm) == nil
		}
		f.Engine.ObserveExec(ev.PID, comm, known, ev.TimeNs, c)
	case Exit:
		f.Engine.ObserveExit(ev.TID, ev.PID, ev.TimeNs, boot, c)
	case Comm:
		f.Engine.ObserveRename(ev.TID, ev.Comm, ev.TimeNs, c)
	case Free:
		f.Engine.ObserveFree(ev.PID, ev.TimeNs)
	case Lost:
		f.gap(ev.Lost)
	case Blind:
		f.stale(table.MonotonicNs())
	}
	if c.Type != task.Nothing {
		f.tell(c, ev)
	}
}

var recordTypes = [...]struct {
	typ    RecordType
	thread bool
}{
	task.Born: {typ: RecFork}, task.ThreadBorn: {typ: RecFork},
	task.Execed: {typ: RecExec}, task.Renamed: {typ: RecComm},
	task.Ended: {typ: RecExit}, task.ThreadGone: {typ: RecExit},
}

// tell publishes a change. The exit of a process bears its leader's number, even
// when another thread was the last.
func (f *Follower) tell(c *task.Change, ev *Event) {
	r := Record{
		TimeNs: ev.TimeNs, StartTicks: c.StartTicks, PID: c.PID, TID: c.TID, PPID: c.PPID,
		Type: recordTypes[c.Type].typ, Flags: HasComm, Comm: c.Comm,
	}
	if ev.Kind == Exit && ev.Flags&HasCode != 0 && (c.Type == task.ThreadGone || ev.TID == c.TID) {
		r.Flags |= HasCode
		r.Code = uint16(ev.Code)
	}
	f.Feed.Publish(&r)
}

// gap marks the table stale after a loss of events; 0 stands for an unknown
// number.
func (f *Follower) gap(lost uint64) {
	h := f.Table.Header()
	now := table.MonotonicNs()
	if f.stale(now) {
		f.Table.Bump(&h.Gaps, 1)
		f.logf("events were lost; the table is compared with /proc (see kpidd status: lost, gaps, resyncs)")
	}
	f.Table.Bump(&h.Lost, lost)
	gap := GapRecord(now, lost)
	f.Feed.Publish(&gap)
}

// stale has the table compared with /proc; until then readers are told. It
// reports whether the table was whole before. The comparison waits a little: a
// task whose exit was lost can be seen in /proc until it has left for good.
func (f *Follower) stale(now uint64) bool {
	f.wantResync = true
	f.notBefore = max(f.notBefore, now+uint64(settle))
	h := f.Table.Header()
	if h.StaleSinceNs != 0 {
		return false
	}
	f.Table.Set(&h.StaleSinceNs, now)
	return true
}

// tableFull has the tasks that were left out looked for again later.
func (f *Follower) tableFull(err error) {
	if f.fullSince == 0 {
		f.fullSince = table.MonotonicNs()
	}
	f.logf("%v: new tasks are left out until there is room", err)
}
