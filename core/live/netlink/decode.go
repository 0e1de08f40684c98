package netlink

import (
	"encoding/binary"

	"github.com/kpidd/kpidd/core/live"
	"golang.org/x/sys/unix"
)

// Numbers of the connector's protocol, and the layout of a datagram: a netlink
// header (16 bytes), a connector header (20), an event (16 and its data).
const (
	cnIdxProc = 1
	cnValProc = 1

	opListen = 1
	opIgnore = 2

	whatNone = 0 // acknowledgement of LISTEN and IGNORE
	whatFork = 0x00000001
	whatExec = 0x00000002
	whatComm = 0x00000200
	whatExit = 0x80000000

	offCn    = 16
	offEvent = offCn + 20
	offData  = offEvent + 16

	// cpusMax is the largest number of CPUs that Linux can be built for.
	cpusMax = 8192
)

// message is a decoded datagram.
type message struct {
	event  live.Event // Kind is 0 for what is of no use here
	seq    uint32     // counts the datagrams of one CPU
	cpu    uint32     // below cpusMax
	ack    uint32     // acknowledgement: one more than that of the request
	ackErr uint32     // acknowledgement: errno
	isAck  bool
}

var native = binary.NativeEndian

// decode reads one datagram. ok is false if it is none of the proc connector,
// or makes no sense; m is undefined then. Safe on any input.
func decode(b []byte, m *message) (ok bool) {
	if len(b) < offData {
		return false
	}
	size := native.Uint32(b)
	if size < offData || uint64(size) > uint64(len(b)) || native.Uint16(b[4:]) != unix.NLMSG_DONE {
		return false
	}
	b = b[:size]
	if native.Uint32(b[offCn:]) != cnIdxProc || native.Uint32(b[offCn+4:]) != cnValProc {
		return false
	}
	eventSize := int(native.Uint16(b[offCn+16:]))
	if eventSize < offData-offEvent || eventSize > len(b)-offEvent {
		return false
	}
	*m = message{
		seq: native.Uint32(b[offCn+8:]),
		ack: native.Uint32(b[offCn+12:]),
		cpu: native.Uint32(b[offEvent+4:]),
	}
	m.event.TimeNs = native.Uint64(b[offEvent+8:])
	if m.cpu >= cpusMax {
		return false
	}
	return m.decodeData(native.Uint32(b[offEvent:]), b[offData:offEvent+eventSize])
}

// decodeData reads the part that depends on the kind of event.
func (m *message) decodeData(what uint32, data []byte) (ok bool) {
	e := &m.event
	switch what {
	case whatNone:
		if len(data) < 4 {
			return false
		}
		m.isAck, m.ackErr = true, native.Uint32(data)
		return true
	case whatFork:
		if len(data) < 16 {
			return false
		}
		e.Kind, e.Flags = live.Fork, live.RealParent
		e.PPID = native.Uint32(data[4:])
		e.TID = native.Uint32(data[8:])
		e.PID = native.Uint32(data[12:])
	case whatExec:
		if len(data) < 8 {
			return false
		}
		e.Kind = live.Exec
		e.PID = native.Uint32(data[4:])
		e.TID = e.PID
	case whatExit:
		if len(data) < 16 {
			return false
		}
		e.Kind, e.Flags = live.Exit, live.HasCode
		e.TID = native.Uint32(data)
		e.PID = native.Uint32(data[4:])
		e.Code = native.Uint32(data[8:])
	case whatComm:
		if len(data) < 24 {
			return false
		}
		e.Kind, e.Flags = live.Comm, live.HasComm
		e.TID = native.Uint32(data)
		e.PID = native.Uint32(data[4:])
		copy(e.Comm[:15], data[8:24])
		padName(&e.Comm)
	}
	if e.TID == 0 || e.PID == 0 { // an idle task of a CPU that came online
		e.Kind = 0
	}
	return true
}

// padName clears what stands behind the first NUL.
func padName(comm *[16]byte) {
	for i, c := range comm {
		if c == 0 {
			clear(comm[i:])
			return
		}
	}
}
