package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kpidd/kpidd/core/live/scan"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
	"github.com/spf13/cobra"
)

func newAudit(opts *options) *cobra.Command {
	var (
		settle time.Duration
		asJSON bool
	)
	c := &cobra.Command{
		Use: "audit", Short: "Compare the table with /proc, twice", Args: cobra.NoArgs,
		Long: `Compare the table with /proc without asking the daemon for anything: the set of
thread ids, and of each task the group, start, name, and parent where the source
tells it. A difference counts only if a second pass, after --settle, shows it again
for the same life of the same number. Exits 0 only if there is none.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if settle < 0 {
				return usage("--settle: want a time of 0 or more")
			}
			r, err := table.Open(readerDirs(opts)...)
			if err != nil {
				return cannot(err)
			}
			defer r.Close()
			switch age, err := r.Fresh(); {
			case errors.Is(err, table.ErrDead):
				return cannot(fmt.Errorf("%w (last sign of life %s ago)", err, age.Round(time.Millisecond)))
			case err != nil:
				opts.note("%v, since %s", err, age.Round(time.Millisecond))
			}
			report, err := audit(r, settle)
			if err != nil {
				return cannot(err)
			}
			format := "checked %d missing %d ghosts %d mismatched %d\n"
			if asJSON {
				format = "{\"checked\":%d,\"missing\":%d,\"ghosts\":%d,\"mismatched\":%d}\n"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), format, report.checked, report.missing, report.ghosts, report.mismatched)
			if err != nil {
				return cannot(err)
			}
			for _, line := range report.lines {
				opts.note("%s", line)
			}
			if report.missing+report.ghosts+report.mismatched > 0 {
				return &exitError{code: exitNone}
			}
			return nil
		},
	}
	c.Flags().DurationVar(&settle, "settle", 200*time.Millisecond, "time between the two passes")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}

// auditReport is the outcome of an audit. lines explain the first differences.
type auditReport struct {
	checked, missing, ghosts, mismatched int
	lines                                []string
}

const auditLinesMax = 20

// difference is what a pass found about one life; equal ones in both passes count.
type difference struct {
	kind       differenceKind
	tid        uint32
	startTicks uint64
	gen        uint32 // ghosts: tells two lives apart that started in one tick
}

type differenceKind uint8

const (
	missing differenceKind = iota
	ghost
	mismatchedTGID
	mismatchedStart
	mismatchedComm
	mismatchedPPID
)

var differenceNames = [...]string{"missing", "ghost", "other thread group", "other start", "other name", "other parent"}

// audit compares twice. It reads the table and /proc and nothing else.
func audit(r *table.Reader, settle time.Duration) (rep auditReport, err error) {
	proc, err := procfile.Open("/proc")
	if err != nil {
		return rep, err
	}
	defer proc.Close()
	if err := comparable(r, proc); err != nil {
		return rep, err
	}
	first, _, err := auditPass(r, proc)
	if err != nil {
		return rep, err
	}
	time.Sleep(settle)
	second, checked, err := auditPass(r, proc)
	if err != nil {
		return rep, err
	}
	rep.checked = checked
	for d, detail := range second {
		if _, again := first[d]; !again {
			continue
		}
		switch d.kind {
		case missing:
			rep.missing++
		case ghost:
			rep.ghosts++
		default:
			rep.mismatched++
		}
		rep.lines = append(rep.lines, fmt.Sprintf("%s: task %d (start_ticks %d)%s", differenceNames[d.kind], d.tid, d.startTicks, detail))
	}
	slices.Sort(rep.lines)
	if n := len(rep.lines); n > auditLinesMax {
		rep.lines = append(rep.lines[:auditLinesMax], fmt.Sprintf("… and %d more", n-auditLinesMax))
	}
	return rep, nil
}

// comparable refuses an audit in which the table and this /proc show different
// worlds.
func comparable(r *table.Reader, proc *procfile.Proc) error {
	if err := procfile.CheckTimeNamespace(); err != nil {
		return err
	}
	h := r.Header()
	var st procfile.Stat
	if err := proc.TaskStat(h.WriterPID, h.WriterPID, &st); err != nil || st.StartTicks != h.WriterStartTicks {
		return fmt.Errorf("this /proc does not show the daemon as process %d: run the audit in its PID namespace", h.WriterPID)
	}
	if hidden, err := proc.HidesOthers(); err == nil && hidden {
		return errors.New("/proc hides the processes of other users (hidepid): run the audit as root")
	}
	return nil
}

// auditPass compares once: the table first, then /proc. The value of a difference
// is its explanation.
func auditPass(r *table.Reader, proc *procfile.Proc) (diffs map[difference]string, checked int, err error) {
	tasks, _ := r.AppendTasks(nil)
	known := make(map[uint32]*table.Hot, len(tasks))
	for i := range tasks {
		known[tasks[i].TID] = &tasks[i]
	}
	diffs = map[difference]string{}
	_, err = scan.New(proc).Scan(func(t *scan.Task) {
		h := known[t.TID]
		if t.TID != t.TGID && (t.State == 'Z' || t.State == 'X') {
			delete(known, t.TID) // a tracer holds what is left of it: see docs/design.md
			return
		}
		checked++
		if h == nil {
			diffs[difference{kind: missing, tid: t.TID, startTicks: t.StartTicks}] = fmt.Sprintf(" of process %d, %q, state %c", t.TGID, nameOf(t), t.State)
			return
		}
		delete(known, t.TID)
		compare(diffs, h, t)
	}, nil)
	if err != nil {
		return nil, 0, err
	}
	for tid, h := range known {
		diffs[difference{kind: ghost, tid: tid, startTicks: h.StartTicks, gen: h.Gen}] = fmt.Sprintf(" of process %d, %q", h.TGID, h.Name())
	}
	return diffs, checked, nil
}

// compare notes every field in which the table and /proc differ about one number.
func compare(diffs map[difference]string, h *table.Hot, t *scan.Task) {
	note := func(kind differenceKind, format string, args ...any) {
		diffs[difference{kind: kind, tid: t.TID, startTicks: t.StartTicks}] = fmt.Sprintf(format, args...)
	}
	if h.TGID != t.TGID {
		note(mismatchedTGID, ": table %d, /proc %d", h.TGID, t.TGID)
	}
	tolerance := uint64(0)
	if h.Flags&table.FlagStartEstimated != 0 {
		tolerance = 1
	}
	if h.StartTicks+tolerance < t.StartTicks || t.StartTicks+tolerance < h.StartTicks {
		note(mismatchedStart, ": table %d", h.StartTicks)
	}
	if h.Comm != t.Comm {
		note(mismatchedComm, ": table %q, /proc %q", h.Name(), nameOf(t))
	}
	if h.PPID != t.PPID && h.Flags&table.FlagPPIDEstimated == 0 {
		note(mismatchedPPID, ": table %d, /proc %d", h.PPID, t.PPID)
	}
}

func nameOf(t *scan.Task) string { return strings.TrimRight(string(t.Comm[:]), "\x00") }
