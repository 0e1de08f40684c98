package main

import (
	"bufio"
	"slices"
	"strconv"
	"time"

	"github.com/kpidd/kpidd/core/field"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
)

// formatter renders a list of tasks.
type formatter struct {
	*taskList
	bootWall time.Time // CLOCK_REALTIME at boot, of this moment: a step of the clock moves it
	now      time.Time
	buf      []byte
}

func newFormatter(l *taskList) *formatter {
	now := table.WallNs()
	return &formatter{taskList: l, now: time.Unix(0, int64(now)), bootWall: time.Unix(0, int64(now-table.BoottimeNs()))}
}

// known tells whether the list has a value for a field of h; what is not known
// is shown as "-", and as null in JSON.
func (f *formatter) known(id field.ID, h *table.Hot) bool {
	switch id {
	case field.State:
		return h.State != 0
	case field.StartNs:
		return h.StartNs != 0
	case field.Gen:
		return !f.fromProc
	case field.PPIDAtFork:
		return h.PPIDAtFork != 0 // it was forked before the daemon looked
	case field.Threads:
		return h.TID == h.TGID
	}
	return true
}

// start is the wall time of a task's start.
func (f *formatter) start(h *table.Hot) time.Time {
	ns := h.StartTicks * (1e9 / f.clockTicks)
	return f.bootWall.Add(time.Duration(ns))
}

// number is the value of a field that is a number.
func number(id field.ID, h *table.Hot) uint64 {
	switch id {
	case field.PID:
		return uint64(h.TGID)
	case field.TID:
		return uint64(h.TID)
	case field.PPID:
		return uint64(h.PPID)
	case field.PPIDAtFork:
		return uint64(h.PPIDAtFork)
	case field.Threads:
		return uint64(h.Threads)
	case field.StartTicks:
		return h.StartTicks
	case field.StartNs:
		return h.StartNs
	case field.Gen:
		return uint64(h.Gen)
	}
	panic("field " + field.Catalogue[id].Name + " is no number")
}

// appendText appends the value as a column shows it.
func (f *formatter) appendText(dst []byte, id field.ID, h *table.Hot) []byte {
	if !f.known(id, h) {
		return append(dst, '-')
	}
	switch id {
	case field.Comm:
		return procfile.AppendEscaped(dst, h.Name())
	case field.State:
		return append(dst, h.State)
	case field.StartTime:
		return f.start(h).AppendFormat(dst, f.startFormat(h))
	case field.LStart:
		return f.start(h).AppendFormat(dst, time.ANSIC)
	case field.KThread:
		if h.Flags&table.FlagKThread != 0 {
			return append(dst, '1')
		}
		return append(dst, '0')
	}
	return strconv.AppendUint(dst, number(id, h), 10)
}

// startFormat shows as ps(1) does: the time of today, the day of this year, the
// year.
func (f *formatter) startFormat(h *table.Hot) string {
	t := f.start(h)
	switch {
	case t.Year() != f.now.Year():
		return "2006"
	case t.YearDay() != f.now.YearDay():
		return "Jan02"
	}
	return "15:04"
}

// appendJSON appends the value as JSON.
func (f *formatter) appendJSON(dst []byte, id field.ID, h *table.Hot) []byte {
	if !f.known(id, h) {
		return append(dst, "null"...)
	}
	switch id {
	case field.Comm:
		return procfile.AppendJSONString(dst, h.Name())
	case field.State:
		return procfile.AppendJSONString(dst, []byte{h.State})
	case field.StartTime, field.LStart:
		dst = append(dst, '"')
		dst = f.start(h).AppendFormat(dst, time.RFC3339)
		return append(dst, '"')
	case field.KThread:
		return strconv.AppendBool(dst, h.Flags&table.FlagKThread != 0)
	}
	return strconv.AppendUint(dst, number(id, h), 10)
}

// writeText writes a header, unless all columns renamed theirs to nothing, and a
// line for each task. The last column is not padded.
func (f *formatter) writeText(out *bufio.Writer, cols []column) {
	header := false
	for _, c := range cols {
		header = header || c.header != ""
	}
	if header {
		f.buf = f.buf[:0]
		for i, c := range cols {
			start := len(f.buf)
			f.buf = append(f.buf, c.header...)
			f.pad(start, c, i == len(cols)-1)
		}
		out.Write(append(f.buf, '\n'))
	}
	for i := range f.tasks {
		f.buf = f.buf[:0]
		for k, c := range cols {
			start := len(f.buf)
			f.buf = f.appendText(f.buf, c.ID, &f.tasks[i])
			f.pad(start, c, k == len(cols)-1)
		}
		out.Write(append(f.buf, '\n'))
	}
}

// pad brings the value that begins at start to its column's width and adds the
// blank after it.
func (f *formatter) pad(start int, c column, last bool) {
	fd := &field.Catalogue[c.ID]
	n := max(max(fd.Width, len(c.header))-(len(f.buf)-start), 0)
	if fd.Right {
		for range n {
			f.buf = append(f.buf, ' ')
		}
		copy(f.buf[start+n:], f.buf[start:len(f.buf)-n])
		for i := range n {
			f.buf[start+i] = ' '
		}
	} else if !last {
		for range n {
			f.buf = append(f.buf, ' ')
		}
	}
	if !last {
		f.buf = append(f.buf, ' ')
	}
}

// writeJSON writes an object a line with the fields of cols, or all of them. A key
// that two columns share is written once.
func (f *formatter) writeJSON(out *bufio.Writer, chosen bool, cols []column) {
	if !chosen {
		cols = nil
		for id := range field.Catalogue {
			if field.ID(id) != field.LStart { // start_time in full, which JSON has anyway
				cols = append(cols, column{ID: field.ID(id)})
			}
		}
	}
	keys := map[string]bool{}
	cols = slices.DeleteFunc(slices.Clone(cols), func(c column) bool {
		key := field.Catalogue[c.ID].JSON
		again := keys[key]
		keys[key] = true
		return again
	})
	for i := range f.tasks {
		f.buf = append(f.buf[:0], '{')
		for k, c := range cols {
			if k > 0 {
				f.buf = append(f.buf, ',')
			}
			f.buf = append(f.buf, '"')
			f.buf = append(f.buf, field.Catalogue[c.ID].JSON...)
			f.buf = append(f.buf, '"', ':')
			f.buf = f.appendJSON(f.buf, c.ID, &f.tasks[i])
		}
		out.Write(append(f.buf, '}', '\n'))
	}
}
