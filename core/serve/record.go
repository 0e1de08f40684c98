package serve

import (
	"bytes"
	"strconv"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/procfile"
)

// recordBytesMax is more than appendRecord ever appends: 16 bytes of comm at
// six each, six numbers, and the keys.
const recordBytesMax = 384

// appendRecord appends r as one line of NDJSON. It allocates only if dst is too
// small.
func appendRecord(dst []byte, r *live.Record) []byte {
	dst = appendUint(dst, `{"seq":`, r.Seq)
	dst = appendUint(dst, `,"time_ns":`, r.TimeNs)
	switch r.Type {
	case live.RecFork:
		dst = append(dst, `,"type":"fork"`...)
		dst = appendTask(dst, r)
		dst = appendUint(dst, `,"ppid":`, uint64(r.PPID))
	case live.RecExec:
		dst = append(dst, `,"type":"exec"`...)
		dst = appendTask(dst, r)
	case live.RecExit:
		dst = append(dst, `,"type":"exit"`...)
		dst = appendTask(dst, r)
		dst = appendStatus(dst, r)
	case live.RecComm:
		dst = append(dst, `,"type":"comm"`...)
		dst = appendTask(dst, r)
	case live.RecGap:
		dst = append(dst, `,"type":"gap"`...)
		dst = appendOrNull(dst, `,"lost":`, r.Lost(), r.Lost() != 0)
	case live.RecResync:
		dst = append(dst, `,"type":"resync"`...)
	}
	return append(dst, '}', '\n')
}

// appendTask appends what identifies and names the task.
func appendTask(dst []byte, r *live.Record) []byte {
	dst = appendUint(dst, `,"pid":`, uint64(r.PID))
	dst = appendUint(dst, `,"tid":`, uint64(r.TID))
	dst = appendUint(dst, `,"start_ticks":`, r.StartTicks)
	comm := r.Comm[:]
	if end := bytes.IndexByte(comm, 0); end >= 0 {
		comm = comm[:end]
	}
	return procfile.AppendJSONString(append(dst, `,"comm":`...), comm)
}

// appendStatus appends code, null for a task that a signal has ended, and
// signal, null for one that has exited; both are null where the source does not
// tell.
func appendStatus(dst []byte, r *live.Record) []byte {
	const signalMask = 0x7f
	told := r.Flags&live.HasCode != 0
	signal := uint64(r.Code & signalMask)
	dst = appendOrNull(dst, `,"code":`, uint64(r.Code>>8), told && signal == 0)
	return appendOrNull(dst, `,"signal":`, signal, told && signal != 0)
}

func appendUint(dst []byte, key string, v uint64) []byte {
	return strconv.AppendUint(append(dst, key...), v, 10)
}

func appendOrNull(dst []byte, key string, v uint64, ok bool) []byte {
	if !ok {
		return append(append(dst, key...), "null"...)
	}
	return appendUint(dst, key, v)
}
