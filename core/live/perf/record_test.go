package perf

import (
	"errors"
	"strings"
	"testing"

	"github.com/kpidd/kpidd/core/live"
	"golang.org/x/sys/unix"
)

func comm(s string) (c [16]byte) {
	copy(c[:], s)
	return c
}

// drainAll drains one round with a cut, through buffers of the given size.
func drainAll(m *merge, cut uint64, bufLen int) ([]live.Event, error) {
	if err := m.begin(cut); err != nil {
		return nil, err
	}
	var all []live.Event
	buf := make([]live.Event, bufLen)
	for {
		n, err := m.drain(buf)
		all = append(all, buf[:n]...)
		if err != nil || n < len(buf) {
			return all, err
		}
	}
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name string
		rec  []byte
		want []live.Event
	}{
		{"fork of a process", forkRecord(20, 10, 20, 11, 7), []live.Event{
			{Kind: live.Fork, PID: 20, TID: 20, PPID: 10, PTID: 11, TimeNs: 7}}},
		{"fork of a thread", forkRecord(10, 10, 21, 10, 7), []live.Event{
			{Kind: live.Fork, PID: 10, TID: 21, PPID: 10, PTID: 10, TimeNs: 7}}},
		{"fork by a parent outside", forkRecord(20, 0, 20, 0, 7), []live.Event{
			{Kind: live.Fork, PID: 20, TID: 20, TimeNs: 7}}},
		{"fork by a parent that cannot be named", forkRecord(20, outside, 20, outside, 7), []live.Event{
			{Kind: live.Fork, PID: 20, TID: 20, TimeNs: 7}}},
		{"exit", exitRecord(10, 21, 8), []live.Event{
			{Kind: live.Exit, PID: 10, TID: 21, TimeNs: 8}}},
		{"comm of 7 bytes", commRecord(10, 21, "seven77", false, 9), []live.Event{
			{Kind: live.Comm, PID: 10, TID: 21, Comm: comm("seven77"), Flags: live.HasComm, TimeNs: 9}}},
		{"comm of 15 bytes", commRecord(10, 21, "fifteen-bytes-x", false, 9), []live.Event{
			{Kind: live.Comm, PID: 10, TID: 21, Comm: comm("fifteen-bytes-x"), Flags: live.HasComm, TimeNs: 9}}},
		{"empty comm", commRecord(10, 21, "", false, 9), []live.Event{
			{Kind: live.Comm, PID: 10, TID: 21, Flags: live.HasComm, TimeNs: 9}}},
		{"comm longer than the kernel's", commRecord(10, 21, "0123456789abcdefghijk", false, 9), []live.Event{
			{Kind: live.Comm, PID: 10, TID: 21, Comm: comm("0123456789abcdef"), Flags: live.HasComm, TimeNs: 9}}},
		{"exec", commRecord(10, 10, "true", true, 9), []live.Event{
			{Kind: live.Exec, PID: 10, TID: 10, Comm: comm("true"), Flags: live.HasComm, TimeNs: 9}}},
		{"exec names the group", commRecord(10, 21, "true", true, 9), []live.Event{
			{Kind: live.Exec, PID: 10, TID: 10, Comm: comm("true"), Flags: live.HasComm, TimeNs: 9}}},
		{"lost", lostRecord(5, 9), []live.Event{{Kind: live.Lost, Lost: 5, TimeNs: 9}}},
		{"lost nothing", lostRecord(0, 9), nil},
		{"fork, pid 0", forkRecord(0, 10, 20, 10, 7), nil},
		{"fork, tid 0", forkRecord(20, 10, 0, 10, 7), nil},
		{"fork, outside", forkRecord(outside, 10, outside, 10, 7), nil},
		{"exit, pid 0", exitRecord(0, 21, 8), nil},
		{"exit, outside", exitRecord(10, outside, 8), nil},
		{"comm, pid 0", commRecord(0, 0, "x", true, 8), nil},
		{"comm, outside", commRecord(outside, outside, "x", false, 8), nil},
		{"throttle", record(unix.PERF_RECORD_THROTTLE, 0, 8, u64s(1, 2, 3)), nil},
		{"type of the future", record(1000, 0xffff, 8), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeRing(4096)
			var m merge
			m.setRings([]*ring{f.reader(0)})
			// What is skipped must not hide what follows.
			f.write(tt.rec)
			f.write(exitRecord(777, 777, 100))
			want := append(tt.want, live.Event{Kind: live.Exit, PID: 777, TID: 777, TimeNs: 100})

			got, err := drainAll(&m, 1000, 16)
			if err != nil {
				t.Fatalf("drain: %v", err)
			}
			compare(t, got, want)
			if f.page.Data_tail != f.head {
				t.Errorf("tail after the round: got %d, want %d", f.page.Data_tail, f.head)
			}
		})
	}
}

func compare(t *testing.T, got, want []live.Event) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("event %d: got none, want %+v", i, want[i])
		case i >= len(want):
			t.Fatalf("event %d: got %+v, want none", i, got[i])
		case got[i] != want[i]:
			t.Fatalf("event %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

func TestCorrupt(t *testing.T) {
	size := func(rec []byte, n uint16) []byte {
		*(*[2]byte)(rec[6:]) = [2]byte(binaryU16(n))
		return rec
	}
	tests := []struct {
		name string
		rec  []byte
		head uint64 // in place of the right one, if not 0
		want string
	}{
		{"length 0", size(exitRecord(1, 1, 5), 0), 0, "length"},
		{"length 8", size(exitRecord(1, 1, 5), 8), 0, "length"},
		{"length no multiple of 8", size(exitRecord(1, 1, 5), 57), 0, "length"},
		{"length past the head", size(exitRecord(1, 1, 5), 64), 0, "length"},
		{"length past the ring", size(exitRecord(1, 1, 5), 0xfff8), 0, "length"},
		{"rest too short", record(1000, 0, 5, u64s(1, 2, 3)), 56 + 8, "rest"},
		{"head between words", record(1000, 0, 5, u64s(1, 2, 3)), 56 + 4, "rest"},
		{"head past the ring", exitRecord(1, 1, 5), 4096 + 8, "out of reach"},
		{"head far past the ring", exitRecord(1, 1, 5), 1 << 63, "out of reach"},
		{"short fork", record(unix.PERF_RECORD_FORK, 0, 5, u64s(1, 2)), 0, "length"},
		{"short exit", record(unix.PERF_RECORD_EXIT, 0, 5), 0, "length"},
		{"short comm", record(unix.PERF_RECORD_COMM, 0, 5, u64s(1)), 0, "length"},
		{"short lost", record(unix.PERF_RECORD_LOST, 0, 5, u64s(1)), 0, "length"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeRing(4096)
			var m merge
			m.setRings([]*ring{f.reader(3)})
			f.write(tt.rec)
			if tt.head != 0 {
				f.page.Data_head = tt.head
			}
			got, err := drainAll(&m, 1000, 16)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "cpu 3") {
				t.Fatalf("got %v, %v; want an error that wraps ErrCorrupt and says %q", got, err, tt.want)
			}
			if len(got) != 0 {
				t.Errorf("got %+v beside the error, want nothing", got)
			}
			if _, again := drainAll(&m, 1000, 16); !errors.Is(again, ErrCorrupt) {
				t.Errorf("second round: got %v, want ErrCorrupt again", again)
			}
		})
	}
}

// TestCorruptBehindGood: what stands before the fault is delivered.
func TestCorruptBehindGood(t *testing.T) {
	f := newFakeRing(4096)
	var m merge
	m.setRings([]*ring{f.reader(0)})
	f.write(exitRecord(1, 1, 5))
	f.write(record(unix.PERF_RECORD_EXIT, 0, 6))
	got, err := drainAll(&m, 1000, 16)
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("got error %v, want ErrCorrupt", err)
	}
	compare(t, got, []live.Event{{Kind: live.Exit, PID: 1, TID: 1, TimeNs: 5}})
}

// TestAheadOfClock: a record from the future would wait for ever, so it is a
// fault, but not in the round in which it is first seen.
func TestAheadOfClock(t *testing.T) {
	f := newFakeRing(4096)
	var m merge
	m.setRings([]*ring{f.reader(0)})
	f.write(exitRecord(1, 1, 5_000_000_000))
	if got, err := drainAll(&m, 1000, 16); err != nil || len(got) != 0 {
		t.Fatalf("first round: got %v, %v; want nothing", got, err)
	}
	if got, err := drainAll(&m, 4_500_000_000, 16); err != nil || len(got) != 0 {
		t.Fatalf("round within the slack: got %v, %v; want nothing", got, err)
	}
	if got, err := drainAll(&m, 2000, 16); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("later round: got %v, %v; want ErrCorrupt", got, err)
	}
}

func binaryU16(v uint16) []byte { return u32s(uint32(v) | uint32(v)<<16)[:2] }

func FuzzRing(f *testing.F) {
	good := append(forkRecord(20, 10, 20, 10, 50), commRecord(20, 20, "true", true, 60)...)
	good = append(good, lostRecord(3, 65)...)
	good = append(good, exitRecord(20, 20, 70)...)
	f.Add(good, uint64(0), uint16(len(good)), uint64(100))
	f.Add(good, uint64(4096-24), uint16(len(good)), uint64(55))
	f.Add(good, ^uint64(7)-100, uint16(len(good)), uint64(100))
	f.Add(good[:40], uint64(8), uint16(4096), uint64(100))
	f.Add([]byte{}, uint64(0), uint16(4096), uint64(100))
	f.Fuzz(func(t *testing.T, content []byte, start uint64, length uint16, cut uint64) {
		start &^= 7
		fake := newFakeRing(4096).startAt(start)
		reader := fake.reader(0)
		for i := range content {
			fake.data[(start+uint64(i))%4096] = content[i]
		}
		fake.page.Data_head = start + uint64(length)
		var m merge
		m.setRings([]*ring{reader, newFakeRing(4096).reader(1)})
		events, err := drainAll(&m, cut, 7)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("got error %v, want ErrCorrupt or none", err)
		}
		if len(events) > 4096/recordMin {
			t.Errorf("got %d events from a ring that can hold %d", len(events), 4096/recordMin)
		}
		for _, ev := range events {
			if ev.TimeNs > cut {
				t.Errorf("got event of time %d past the cut %d", ev.TimeNs, cut)
			}
			if ev.Kind != live.Lost && (!visible(ev.PID) || !visible(ev.TID)) {
				t.Errorf("got event of pid %d tid %d", ev.PID, ev.TID)
			}
		}
		if moved := fake.page.Data_tail - start; moved > uint64(length) {
			t.Errorf("tail moved by %d bytes of %d", moved, length)
		}
	})
}
