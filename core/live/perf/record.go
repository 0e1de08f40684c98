package perf

import (
	"encoding/binary"

	"github.com/kpidd/kpidd/core/live"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Lengths of records in bytes: the header, the fields, and the sample id (TID,
// TIME, CPU) that ends each one.
const (
	sampleIDBytes = 24
	recordMin     = 8 + sampleIDBytes
	taskBytes     = 8 + 24 + sampleIDBytes // pid ppid tid ptid time
	commMin       = 8 + 16 + sampleIDBytes // pid tid comm, the comm in steps of 8
	lostBytes     = 8 + 16 + sampleIDBytes // id lost
)

// shortest returns the least length of a record of a kind.
func shortest(kind uint32) uint64 {
	if kind < uint32(len(lengths)) {
		return uint64(lengths[kind])
	}
	return recordMin
}

var lengths = [...]uint8{
	0:                           recordMin,
	unix.PERF_RECORD_MMAP:       recordMin,
	unix.PERF_RECORD_LOST:       lostBytes,
	unix.PERF_RECORD_COMM:       commMin,
	unix.PERF_RECORD_EXIT:       taskBytes,
	unix.PERF_RECORD_THROTTLE:   recordMin,
	unix.PERF_RECORD_UNTHROTTLE: recordMin,
	unix.PERF_RECORD_FORK:       taskBytes,
}

// outside is how the kernel shows a task that the opener's PID namespace does
// not hold; 0 is the idle task or one that is gone already.
const outside = ^uint32(0)

// inspect reports whether the record at pos, whose header is h, is one to
// deliver. The kinds come in no order that a branch could foresee, so the
// usual ones share one path.
func (r *ring) inspect(h header) bool {
	const usual = 1<<unix.PERF_RECORD_FORK | 1<<unix.PERF_RECORD_EXIT | 1<<unix.PERF_RECORD_COMM
	kind := h.kind()
	if uint64(usual)>>kind&1 == 0 {
		return kind == unix.PERF_RECORD_LOST && r.inspectLost()
	}
	pid, tid := halves(r.word(r.pos + 8))
	other, _ := halves(r.word(r.pos + 16))
	if kind != unix.PERF_RECORD_COMM {
		tid = other // a ppid stands between
	}
	return visible(pid) && visible(tid)
}

// inspectLost counts the LOST record at pos, and reports whether it tells
// anything new.
//
//go:noinline
func (r *ring) inspectLost() bool {
	r.recorded += r.word(r.pos + 16)
	r.lost = r.tell(r.recorded)
	return r.lost != 0
}

// take decodes the record that peek has found into ev and steps over it.
func (r *ring) take(ev *live.Event) {
	h := header(r.word(r.pos))
	*ev = live.Event{TimeNs: r.time}
	switch h.kind() {
	case unix.PERF_RECORD_FORK:
		ev.Kind = live.Fork
		ev.PID, ev.PPID = halves(r.word(r.pos + 8))
		ev.TID, ev.PTID = halves(r.word(r.pos + 16))
		if ev.PPID == outside || ev.PTID == outside {
			ev.PPID, ev.PTID = 0, 0
		}
	case unix.PERF_RECORD_EXIT:
		ev.Kind = live.Exit
		ev.PID, _ = halves(r.word(r.pos + 8))
		ev.TID, _ = halves(r.word(r.pos + 16))
	case unix.PERF_RECORD_COMM:
		ev.Flags = live.HasComm
		ev.PID, ev.TID = halves(r.word(r.pos + 8))
		ev.Kind = live.Comm
		if h.misc()&unix.PERF_RECORD_MISC_COMM_EXEC != 0 {
			ev.Kind, ev.TID = live.Exec, ev.PID
		}
		binary.NativeEndian.PutUint64(ev.Comm[:8], r.word(r.pos+16))
		if h.size() > commMin {
			binary.NativeEndian.PutUint64(ev.Comm[8:], r.word(r.pos+24))
		}
	case unix.PERF_RECORD_LOST:
		ev.Kind, ev.Lost = live.Lost, r.lost
	}
	r.pos += h.size()
	r.ready = false
}

// visible reports whether id is neither 0 nor outside.
func visible(id uint32) bool { return id-1 < outside-1 }

// header is the first word of a record: u32 type, u16 misc, u16 size.
type header uint64

func (h header) kind() uint32 {
	kind, _ := halves(uint64(h))
	return kind
}

func (h header) misc() uint16 {
	if cpu.IsBigEndian {
		return uint16(h >> 16)
	}
	return uint16(h >> 32)
}

func (h header) size() uint64 {
	if cpu.IsBigEndian {
		return uint64(uint16(h))
	}
	return uint64(h >> 48)
}

// halves returns the two 32-bit fields of a word in the order of memory.
func halves(w uint64) (first, second uint32) {
	if cpu.IsBigEndian {
		return uint32(w >> 32), uint32(w)
	}
	return uint32(w), uint32(w >> 32)
}
