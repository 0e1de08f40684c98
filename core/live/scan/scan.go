package scan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/procfile"
)

// Task is one task as /proc showed it. The visitor may keep a copy.
type Task struct {
	StartTicks uint64 // start after boot, in ticks of procfile.ClockTicks
	TID        uint32
	TGID       uint32 // TID of the leader
	PPID       uint32 // 0: none, or outside the PID namespace
	Flags      uint32 // procfile.PF…
	Threads    uint32 // tasks of the group when this one was read, an exited leader included
	State      byte   // letter; Z and X have exited
	Comm       [16]byte
}

// Stats counts what one scan met.
type Stats struct {
	Processes  int   // leaders visited
	Threads    int   // tasks visited, leaders included
	Vanished   int   // listed, but gone or reaped before they were read
	Incomplete int   // processes whose thread list kept changing: one that lives may be missing
	Unreadable int   // processes that the caller may not read (hidepid)
	DurationNs int64 // whole scan, the visitor and the pump included
}

const (
	// listsMax bounds how often the threads of one process are listed.
	listsMax = 6
	// pumpTasks tasks are read between two looks at the clock (about 0.1 ms),
	// and pumpEvery is the time after which the pump is due.
	pumpTasks = 16
	pumpEvery = time.Millisecond
)

// Scanner takes snapshots. It owns the buffers, so that a later scan allocates
// only for growth. One scan at a time; make it with New, do not copy it.
//
// What a scan promises:
//
//   - S1. A process that lives from the scan's start to its end is visited.
//   - S2. So is each of its threads that does, unless Incomplete counts the
//     process.
//   - S3. Each number is visited at most once per process, the leader first,
//     then the other threads in ascending order. A number whose owner exits
//     during the scan can be met again in another process, with another start.
//   - S4. A task is visited if it was there at some moment of the scan, but a
//     task that began or ended meanwhile may or may not be. Its own fork or
//     exit record is newer than the scan's start, so a stream of records
//     opened before it has the last word; without one, the next scan has.
//
// S2 rests on two facts. A process whose leader says that there is one task
// has no others that S2 speaks of, so its directory of threads is not listed;
// a leader that has exited counts, so a zombie leader with threads says two or
// more. And a list of threads lacks a living one only if it names one that has
// since exited (see procfile.Proc.TIDs). So a list is whole if each task in it
// could be read afterwards, or if the next list names the same tasks.
type Scanner struct {
	proc *procfile.Proc // immutable

	pids  []uint32 // processes of this scan
	tids  []uint32 // threads of this process, last list, ascending
	prev  []uint32 // the list before it
	known []uint32 // threads of this process met so far, ascending; only from the second list on

	leadersOnly bool // of this scan

	stat  procfile.Stat // last read
	task  Task          // last visited
	stats Stats

	visit    func(t *Task)
	pump     func() error
	unpumped int // tasks read since the clock was last looked at
	pumped   time.Time
}

// New makes a Scanner for a proc file system.
func New(p *procfile.Proc) *Scanner { return &Scanner{proc: p} }

// Scan visits every task. pump, if it is not nil, is called about once per
// millisecond, so that the caller can empty its kernel rings meanwhile; only
// the listing of one process's threads, about 1 µs each, is not interrupted.
// An error of pump ends the scan and is returned as it is. That tasks vanish is no
// error.
func (s *Scanner) Scan(visit func(t *Task), pump func() error) (Stats, error) {
	start := time.Now()
	s.visit, s.pump, s.stats = visit, pump, Stats{}
	s.unpumped, s.pumped = 0, start
	err := s.scan()
	s.visit, s.pump = nil, nil
	s.stats.DurationNs = time.Since(start).Nanoseconds()
	return s.stats, err
}

func (s *Scanner) scan() error {
	var err error
	if s.pids, err = s.proc.PIDs(s.pids[:0]); err != nil {
		return fmt.Errorf("scan %s: %w", s.proc.Root(), err)
	}
	for _, pid := range s.pids {
		if err := s.process(pid); err != nil {
			return err
		}
	}
	return nil
}

// process visits the leader and, if there are any, the other threads.
func (s *Scanner) process(pid uint32) error {
	found, err := s.read(pid, pid)
	switch {
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		s.stats.Unreadable++
		return nil
	case err != nil:
		return err
	case !found:
		s.stats.Vanished++
		return s.pumpIfDue()
	}
	s.stats.Processes++
	if s.stat.NumThreads > 1 && !s.leadersOnly {
		if err := s.threads(pid); err != nil {
			return err
		}
	}
	return s.pumpIfDue()
}

// threads visits all threads of a process but the leader.
func (s *Scanner) threads(pid uint32) error {
	s.prev, s.known = s.prev[:0], s.known[:0]
	for lists := 1; ; lists++ {
		var oneCall bool
		var err error
		s.tids, oneCall, err = s.proc.TIDs(pid, s.tids[:0])
		if errors.Is(err, procfile.ErrGone) {
			return nil // the whole process has ended
		}
		if err != nil {
			return fmt.Errorf("scan threads of process %d: %w", pid, err)
		}
		slices.Sort(s.tids)
		if lists > 1 && oneCall && slices.Equal(s.tids, s.prev) {
			return nil
		}
		vanished, err := s.unknown(pid)
		if err != nil {
			return err
		}
		if lists == 1 && oneCall && vanished == 0 {
			return nil
		}
		s.stats.Vanished += vanished
		if lists == listsMax {
			s.stats.Incomplete++
			return nil
		}
		s.known = append(s.known, s.tids...)
		slices.Sort(s.known)
		s.known = slices.Compact(s.known)
		s.tids, s.prev = s.prev, s.tids
	}
}

// unknown visits the threads of the last list that no list before it had, and
// returns how many of them were gone.
func (s *Scanner) unknown(pid uint32) (vanished int, err error) {
	for _, tid := range s.tids {
		if tid == pid {
			continue
		}
		if len(s.known) > 0 {
			if _, met := slices.BinarySearch(s.known, tid); met {
				continue
			}
		}
		found, err := s.read(pid, tid)
		if err != nil {
			return vanished, err
		}
		if !found {
			vanished++
		}
		if err := s.pumpIfDue(); err != nil {
			return vanished, err
		}
	}
	return vanished, nil
}

// read reads one task and visits it, unless it is gone.
func (s *Scanner) read(pid, tid uint32) (found bool, err error) {
	if err := s.proc.TaskStat(pid, tid, &s.stat); err != nil {
		if errors.Is(err, procfile.ErrGone) {
			return false, nil
		}
		return false, fmt.Errorf("scan task %d of process %d: %w", tid, pid, err)
	}
	if s.stat.NumThreads == 0 {
		return false, nil // reaped while the file was open
	}
	s.task = Task{
		StartTicks: s.stat.StartTicks,
		TID:        tid,
		TGID:       pid,
		PPID:       s.stat.PPID,
		Flags:      s.stat.Flags,
		Threads:    s.stat.NumThreads,
		State:      s.stat.State,
		Comm:       s.stat.Comm,
	}
	s.stats.Threads++
	s.visit(&s.task)
	return true, nil
}

// pumpIfDue counts a task and calls the pump when its time has come.
func (s *Scanner) pumpIfDue() error {
	if s.pump == nil {
		return nil
	}
	if s.unpumped++; s.unpumped < pumpTasks {
		return nil
	}
	s.unpumped = 0
	if time.Since(s.pumped) < pumpEvery {
		return nil
	}
	err := s.pump()
	s.pumped = time.Now()
	return err
}
