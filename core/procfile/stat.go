package procfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// Task flags as field 9 of the stat line shows them.
const (
	PFExiting  uint32 = 0x00000004 // has begun to exit; the state letter follows later
	PFWQWorker uint32 = 0x00000020 // works for a workqueue
	PFKThread  uint32 = 0x00200000 // kernel thread
)

// Stat holds the fields of a stat line that kpidd uses. Fields without a
// width fixed by the kernel are as wide as what it prints.
type Stat struct {
	StartTicks uint64 // start after boot, in ticks of ClockTicks, of the reader's time namespace
	UtimeTicks uint64 // user time, ticks
	StimeTicks uint64 // system time, ticks
	VsizeBytes uint64 // address space
	RSSPages   int64  // resident set; approximate, the kernel sums it per CPU
	PID        uint32 // the task, in the PID namespace of the proc mount
	PPID       uint32 // 0: none, or outside the namespace
	PGID       int32  // process group; -1 while the task is being reaped
	SID        int32  // session; -1 while the task is being reaped
	TTYNr      int32  // device number of the controlling terminal, 0 none
	Flags      uint32 // PF…
	NumThreads uint32 // tasks of the group, an exited leader included; 0 once the task is reaped
	ExitCode   int32  // as wait(2) encodes it; 0 for those who may not trace the task
	State      byte   // letter: R S D T t Z X I P …

	// Comm is the task's name, NUL-padded, at most 15 bytes. It may hold any
	// byte but NUL. CommLen is the length of the whole name: that of a kernel
	// thread can be longer. What /proc appends to the name of a workqueue
	// worker (the work at hand, so it changes all the time) is cut off.
	CommLen uint8
	Comm    [16]byte
}

// Numbers of the fields that ParseStat keeps, counted from 1 as proc(5) does.
const (
	fieldPPID     = 4
	fieldPGID     = 5
	fieldSID      = 6
	fieldTTY      = 7
	fieldFlags    = 9
	fieldUtime    = 14
	fieldStime    = 15
	fieldThreads  = 20
	fieldStart    = 22
	fieldVsize    = 23
	fieldRSS      = 24
	fieldExitCode = 52
	fieldLast     = fieldExitCode // since Linux 3.5; later ones are not looked at

	fieldsKept = uint64(1<<fieldPPID | 1<<fieldPGID | 1<<fieldSID | 1<<fieldTTY | 1<<fieldFlags |
		1<<fieldUtime | 1<<fieldStime | 1<<fieldThreads | 1<<fieldStart | 1<<fieldVsize |
		1<<fieldRSS | 1<<fieldExitCode)
)

// The name in a stat line: 15 bytes, or up to 63 for a kernel thread.
const nameMax = 64

var (
	errStatShort = errors.New("stat line is cut short")
	errStatName  = errors.New("stat line has no name in parentheses")
	errStatState = errors.New("stat line has no state letter")
)

// ParseStat parses the whole content of a stat file. The name ends at the
// last ')' of the line, since it may hold blanks, newlines and parentheses of
// its own. Fields that Stat does not keep are passed over. On an error *st is
// undefined. Safe on any input.
func ParseStat(b []byte, st *Stat) error {
	if len(b) == 0 || b[len(b)-1] != '\n' {
		return errStatShort
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 2 || end < open || end-open-1 > nameMax {
		return errStatName
	}
	pid, rest, ok := number(b[:open])
	if !ok || pid.neg || pid.abs > math.MaxUint32 || len(rest) != 1 || rest[0] != ' ' {
		return fieldError(1)
	}
	st.PID = uint32(pid.abs)
	name := b[open+1 : end]

	// " S 1 2 3 …\n": a blank, the state, and a number after each blank.
	rest = b[end+1:]
	if len(rest) < 3 || rest[0] != ' ' || !isLetter(rest[1]) {
		return errStatState
	}
	st.State = rest[1]
	rest = rest[2:]
	for field := fieldPPID; field <= fieldLast; field++ {
		if len(rest) < 2 {
			return errStatShort
		}
		if rest[0] != ' ' {
			return fieldError(field)
		}
		rest = rest[1:]
		if fieldsKept>>field&1 == 0 {
			n := bytes.IndexByte(rest, ' ')
			if n < 1 {
				return fieldError(field)
			}
			rest = rest[n:]
			continue
		}
		var v signed
		if v, rest, ok = number(rest); !ok || !st.set(field, v) {
			return fieldError(field)
		}
	}
	if rest[0] != ' ' && rest[0] != '\n' {
		return fieldError(fieldLast)
	}

	if st.Flags&PFWQWorker != 0 {
		name = workerName(name)
	}
	st.CommLen = uint8(len(name))
	setComm(&st.Comm, name)
	return nil
}

// set stores a field of fieldsKept and tells whether the value fits.
func (st *Stat) set(field int, v signed) bool {
	switch field {
	case fieldPPID:
		st.PPID = uint32(v.abs)
		return v.fitsUint32()
	case fieldPGID:
		st.PGID = int32(v.int64())
		return v.fitsInt32()
	case fieldSID:
		st.SID = int32(v.int64())
		return v.fitsInt32()
	case fieldTTY:
		st.TTYNr = int32(v.int64())
		return v.fitsInt32()
	case fieldFlags:
		st.Flags = uint32(v.abs)
		return v.fitsUint32()
	case fieldUtime:
		st.UtimeTicks = v.abs
		return !v.neg
	case fieldStime:
		st.StimeTicks = v.abs
		return !v.neg
	case fieldThreads:
		st.NumThreads = uint32(v.abs)
		return v.fitsUint32()
	case fieldStart:
		st.StartTicks = v.abs
		return !v.neg
	case fieldVsize:
		st.VsizeBytes = v.abs
		return !v.neg
	case fieldRSS:
		st.RSSPages = v.int64()
		return v.abs <= math.MaxInt64
	case fieldExitCode:
		st.ExitCode = int32(v.int64())
		return v.fitsInt32()
	}
	return false
}

// signed is a decimal number of a stat line: some fields use all 64 bits,
// others are negative.
type signed struct {
	abs uint64
	neg bool
}

func (v signed) int64() int64 {
	if v.neg {
		return -int64(v.abs)
	}
	return int64(v.abs)
}

func (v signed) fitsUint32() bool { return !v.neg && v.abs <= math.MaxUint32 }

func (v signed) fitsInt32() bool {
	if v.neg {
		return v.abs <= -math.MinInt32
	}
	return v.abs <= math.MaxInt32
}

// number cuts a decimal number off the front of b. What does not fit into 64
// bits is refused.
func number(b []byte) (v signed, rest []byte, ok bool) {
	i := 0
	if i < len(b) && b[i] == '-' {
		v.neg = true
		i++
	}
	const safe = 19 // digits that always fit
	first, abs := i, uint64(0)
	for ; i < len(b); i++ {
		d := uint64(b[i] - '0')
		if d > 9 {
			break
		}
		if i-first >= safe && abs > (math.MaxUint64-d)/10 {
			return v, b, false
		}
		abs = abs*10 + d
	}
	v.abs = abs
	return v, b[i:], i > first
}

// workerName returns the part of a workqueue worker's name that is its own.
// The kernel appends the work after '-' (done) or '+' (at hand): in
// "kworker/0:1-events" and "kworker/R-writeback+writeback" the last word.
func workerName(name []byte) []byte {
	const rescuer = "kworker/R-"
	if bytes.HasPrefix(name, []byte(rescuer)) {
		if i := bytes.IndexByte(name, '+'); i >= 0 {
			return name[:i]
		}
		return name
	}
	if i := bytes.IndexAny(name, "-+"); i > 0 {
		return name[:i]
	}
	return name
}

// setComm copies the first 15 bytes of name and pads with NUL.
func setComm(comm *[16]byte, name []byte) {
	*comm = [16]byte{}
	copy(comm[:15], name)
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }

//go:noinline
func fieldError(field int) error {
	return fmt.Errorf("field %d of the stat line is not what it should be", field)
}
