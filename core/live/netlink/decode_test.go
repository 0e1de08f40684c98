package netlink

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/live"
)

// datagram builds what the kernel sends. data follows the event's header and
// is padded to the 24 bytes that every event has.
func datagram(what, cpu, seq uint32, timeNs uint64, data ...uint32) []byte {
	b := make([]byte, offData+24)
	native.PutUint32(b[0:], uint32(len(b)))
	native.PutUint16(b[4:], unix.NLMSG_DONE)
	native.PutUint32(b[offCn:], cnIdxProc)
	native.PutUint32(b[offCn+4:], cnValProc)
	native.PutUint32(b[offCn+8:], seq)
	native.PutUint16(b[offCn+16:], uint16(len(b)-offEvent))
	native.PutUint32(b[offEvent:], what)
	native.PutUint32(b[offEvent+4:], cpu)
	native.PutUint64(b[offEvent+8:], timeNs)
	for i, v := range data {
		native.PutUint32(b[offData+4*i:], v)
	}
	return b
}

func commDatagram(name string) []byte {
	b := datagram(whatComm, 0, 0, 9, 31, 30)
	copy(b[offData+8:], name)
	return b
}

func TestDecode(t *testing.T) {
	const whatUID = 0x00000004
	tests := []struct {
		name string
		in   []byte
		want message
	}{
		{"fork of a process", datagram(whatFork, 3, 7, 9, 11, 10, 20, 20),
			message{seq: 7, cpu: 3, event: live.Event{Kind: live.Fork, TimeNs: 9, PPID: 10, TID: 20, PID: 20, Flags: live.RealParent}}},
		{"fork of a thread", datagram(whatFork, 0, 0, 9, 1, 1, 21, 20),
			message{event: live.Event{Kind: live.Fork, TimeNs: 9, PPID: 1, TID: 21, PID: 20, Flags: live.RealParent}}},
		{"fork of an idle task", datagram(whatFork, 0, 5, 9, 1, 1, 0, 0),
			message{seq: 5, event: live.Event{TimeNs: 9, PPID: 1, Flags: live.RealParent}}},
		{"exec", datagram(whatExec, 1, 2, 9, 20, 20),
			message{seq: 2, cpu: 1, event: live.Event{Kind: live.Exec, TimeNs: 9, TID: 20, PID: 20}}},
		{"exit of a leader", datagram(whatExit, 1, 2, 9, 20, 20, 3<<8, 17, 10, 10),
			message{seq: 2, cpu: 1, event: live.Event{Kind: live.Exit, TimeNs: 9, TID: 20, PID: 20, Code: 3 << 8, Flags: live.HasCode}}},
		{"exit of a thread", datagram(whatExit, 1, 2, 9, 21, 20, 9, 0xffffffff, 10, 10),
			message{seq: 2, cpu: 1, event: live.Event{Kind: live.Exit, TimeNs: 9, TID: 21, PID: 20, Code: 9, Flags: live.HasCode}}},
		{"comm", commDatagram("a) R 1 \n\xff(b\x00old"),
			message{event: live.Event{Kind: live.Comm, TimeNs: 9, TID: 31, PID: 30, Flags: live.HasComm, Comm: [16]byte{'a', ')', ' ', 'R', ' ', '1', ' ', '\n', 0xff, '(', 'b'}}}},
		{"comm without an end", commDatagram("0123456789abcdefg"),
			message{event: live.Event{Kind: live.Comm, TimeNs: 9, TID: 31, PID: 30, Flags: live.HasComm, Comm: [16]byte([]byte("0123456789abcde\x00"))}}},
		{"uid change: counted, not told", datagram(whatUID, 2, 4, 9, 20, 20, 0, 0),
			message{seq: 4, cpu: 2, event: live.Event{TimeNs: 9}}},
		{"acknowledgement", datagram(whatNone, 2, 4, 9, uint32(unix.EINVAL)),
			message{seq: 4, cpu: 2, isAck: true, ackErr: uint32(unix.EINVAL), event: live.Event{TimeNs: 9}}},
		{"grown by fields of a later kernel", longer(datagram(whatExec, 1, 2, 9, 20, 20), 64),
			message{seq: 2, cpu: 1, event: live.Event{Kind: live.Exec, TimeNs: 9, TID: 20, PID: 20}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := message{seq: 99, isAck: true, event: live.Event{Code: 99}}
			if !decode(tt.in, &got) {
				t.Fatalf("decode refused %x", tt.in)
			}
			if got != tt.want {
				t.Errorf("decode = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// longer appends n bytes to a datagram, in all three of its lengths.
func longer(b []byte, n int) []byte {
	b = append(b, make([]byte, n)...)
	native.PutUint32(b, uint32(len(b)))
	native.PutUint16(b[offCn+16:], uint16(len(b)-offEvent))
	return b
}

func TestDecodeRefuses(t *testing.T) {
	good := datagram(whatFork, 0, 0, 9, 11, 10, 20, 20)
	change := func(f func(b []byte)) []byte {
		b := slices.Clone(good)
		f(b)
		return b
	}
	tests := map[string][]byte{
		"nothing":                   nil,
		"half a header":             good[:10],
		"cut in the event's header": good[:offData-1],
		"cut in the data":           good[:offData+8],
		"length beyond the end":     change(func(b []byte) { native.PutUint32(b, uint32(len(b)+1)) }),
		"length 0":                  change(func(b []byte) { native.PutUint32(b, 0) }),
		"length 2^32-1":             change(func(b []byte) { native.PutUint32(b, 1<<32-1) }),
		"netlink type":              change(func(b []byte) { native.PutUint16(b[4:], unix.NLMSG_ERROR) }),
		"connector index":           change(func(b []byte) { b[offCn]++ }),
		"connector value":           change(func(b []byte) { b[offCn+4]++ }),
		"event length 0":            change(func(b []byte) { native.PutUint16(b[offCn+16:], 0) }),
		"event length short":        change(func(b []byte) { native.PutUint16(b[offCn+16:], 24) }),
		"event length beyond":       change(func(b []byte) { native.PutUint16(b[offCn+16:], 41) }),
		"cpu":                       change(func(b []byte) { native.PutUint32(b[offEvent+4:], cpusMax) }),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			var m message
			if decode(in, &m) {
				t.Errorf("decode took %x as %+v", in, m)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(datagram(whatFork, 3, 7, 9, 11, 10, 20, 20))
	f.Add(datagram(whatExec, 1, 2, 9, 20, 20))
	f.Add(datagram(whatExit, 1, 2, 9, 20, 20, 3<<8, 17, 10, 10))
	f.Add(datagram(whatNone, 2, 4, 9, 0))
	f.Add(commDatagram("name"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var m message
		if !decode(in, &m) {
			return
		}
		if m.cpu >= cpusMax {
			t.Errorf("cpu = %d, want below %d", m.cpu, cpusMax)
		}
		e := m.event
		if e.Kind != 0 && (e.TID == 0 || e.PID == 0) {
			t.Errorf("event %+v names task 0", e)
		}
		if m.isAck && e.Kind != 0 {
			t.Errorf("acknowledgement gave event %+v", e)
		}
		if e.Comm[15] != 0 {
			t.Errorf("comm %q has no NUL at its end", e.Comm)
		}
	})
}

func TestDecodeAllocs(t *testing.T) {
	in := commDatagram("name")
	var m message
	if got := testing.AllocsPerRun(100, func() { decode(in, &m) }); got != 0 {
		t.Errorf("decode allocates %v times, want 0", got)
	}
}
