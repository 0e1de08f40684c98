package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/kpidd/kpidd/core/live/scan"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
)

// taskList is what a listing shows, from the table or, without a daemon, from
// /proc.
type taskList struct {
	tasks      []table.Hot
	clockTicks uint64
	fromProc   bool
}

// listTasks lists process leaders, or all tasks, in order of their numbers. What
// a reader should know about the source of the list goes to notes.
func listTasks(opts *options, threads bool) (*taskList, error) {
	r, err := table.Open(readerDirs(opts)...)
	if err != nil {
		if errors.Is(err, table.ErrNoDaemon) {
			opts.note("%v; reading /proc", err)
			return listProc(threads)
		}
		return nil, err
	}
	defer r.Close()
	age, err := r.Fresh()
	switch {
	case errors.Is(err, table.ErrDead):
		opts.note("%v (last sign of life %s ago); reading /proc", err, age.Round(time.Millisecond))
		return listProc(threads)
	case err != nil:
		opts.note("%v, since %s; entries may be missing", err, age.Round(time.Millisecond))
	}
	l := &taskList{clockTicks: uint64(r.Header().ClockTicks)}
	var unstable int
	if threads {
		l.tasks, unstable = r.AppendTasks(nil)
	} else {
		l.tasks, unstable = r.AppendLeaders(nil)
	}
	if unstable > 0 {
		opts.note("%d entries left out: the daemon stopped while it wrote them", unstable)
	}
	if l.clockTicks == 0 {
		return nil, fmt.Errorf("%s: %w: no clock ticks", r.Path(), table.ErrFormat)
	}
	return l, nil
}

// listProc is listTasks from /proc alone.
func listProc(threads bool) (*taskList, error) {
	proc, err := procfile.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	hz, err := procfile.ClockTicks()
	if err != nil {
		return nil, err
	}
	l := &taskList{clockTicks: uint64(hz), fromProc: true}
	visit := func(t *scan.Task) {
		if threads || t.TID == t.TGID {
			l.tasks = append(l.tasks, hotOf(t))
		}
	}
	if threads {
		_, err = scan.New(proc).Scan(visit, nil)
	} else {
		_, err = scan.New(proc).Leaders(visit)
	}
	return l, err
}

// hotOf shows a task of /proc as the table would.
func hotOf(t *scan.Task) table.Hot {
	h := table.Hot{
		TID: t.TID, TGID: t.TGID, PPID: t.PPID, StartTicks: t.StartTicks,
		State: t.State, Comm: t.Comm,
	}
	if t.TID == t.TGID {
		h.Threads = t.Threads
	}
	if t.Flags&procfile.PFKThread != 0 {
		h.Flags |= table.FlagKThread
	}
	return h
}
