package perf

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fakeRing is the kernel's half of a ring, in ordinary memory. It follows the
// kernel's rules: what does not fit is counted, and the count is written as a
// LOST record ahead of the next record that fits with it.
type fakeRing struct {
	page *unix.PerfEventMmapPage
	data []byte
	head uint64

	pending uint64 // lost since the last LOST record
	lost    uint64 // lost in all, as read(2) would tell
}

func newFakeRing(bytes int) *fakeRing {
	words := make([]uint64, bytes/8)
	return &fakeRing{
		page: new(unix.PerfEventMmapPage),
		data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), bytes),
	}
}

// startAt moves an empty ring to an offset, as if that many bytes had passed.
func (f *fakeRing) startAt(off uint64) *fakeRing {
	f.head = off
	f.page.Data_head, f.page.Data_tail = off, off
	return f
}

// reader returns the consumer's half.
func (f *fakeRing) reader(cpu int) *ring {
	r := newRing(cpu, -1, f.page, f.data)
	r.pos, r.limit, r.tail = f.head, f.head, f.head
	return r
}

// write commits a record, and reports whether there was room.
func (f *fakeRing) write(rec []byte) bool {
	need := len(rec)
	if f.pending != 0 {
		need += lostBytes
	}
	used := f.head - atomic.LoadUint64(&f.page.Data_tail)
	if used+uint64(need) > uint64(len(f.data)) {
		f.pending++
		f.lost++
		return false
	}
	if f.pending != 0 {
		// The kernel stamps it after the record that it stands before.
		f.put(lostRecord(f.pending, timeOf(rec)+1))
		f.pending = 0
	}
	f.put(rec)
	atomic.StoreUint64(&f.page.Data_head, f.head)
	return true
}

// put copies a record in at head, round the end if need be.
func (f *fakeRing) put(rec []byte) {
	at := f.head % uint64(len(f.data))
	n := copy(f.data[at:], rec)
	copy(f.data, rec[n:])
	f.head += uint64(len(rec))
}

// The functions that follow return records as the kernel lays them out.

func forkRecord(pid, ppid, tid, ptid uint32, time uint64) []byte {
	return record(unix.PERF_RECORD_FORK, 0, time, u32s(pid, ppid, tid, ptid), u64s(time+1))
}

func exitRecord(pid, tid uint32, time uint64) []byte {
	return record(unix.PERF_RECORD_EXIT, 0, time, u32s(pid, 1, tid, 1), u64s(time+1))
}

func commRecord(pid, tid uint32, comm string, exec bool, time uint64) []byte {
	misc := uint16(0)
	if exec {
		misc = unix.PERF_RECORD_MISC_COMM_EXEC
	}
	padded := make([]byte, (len(comm)/8+1)*8)
	copy(padded, comm)
	return record(unix.PERF_RECORD_COMM, misc, time, u32s(pid, tid), padded)
}

func lostRecord(n, time uint64) []byte {
	return record(unix.PERF_RECORD_LOST, 0, time, u64s(99, n))
}

func record(kind uint32, misc uint16, time uint64, fields ...[]byte) []byte {
	rec := make([]byte, 8)
	for _, f := range fields {
		rec = append(rec, f...)
	}
	rec = append(rec, u32s(1000, 1000)...) // TID
	rec = append(rec, u64s(time)...)       // TIME
	rec = append(rec, u32s(0, 0)...)       // CPU
	binary.NativeEndian.PutUint32(rec[0:], kind)
	binary.NativeEndian.PutUint16(rec[4:], misc)
	binary.NativeEndian.PutUint16(rec[6:], uint16(len(rec)))
	return rec
}

func timeOf(rec []byte) uint64 { return binary.NativeEndian.Uint64(rec[len(rec)-16:]) }

func u32s(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.NativeEndian.AppendUint32(b, x)
	}
	return b
}

func u64s(v ...uint64) (b []byte) {
	for _, x := range v {
		b = binary.NativeEndian.AppendUint64(b, x)
	}
	return b
}

// pause lets others run, also with one thread of Go code.
func pause() { runtime.Gosched() }
