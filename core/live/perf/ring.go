package perf

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/kpidd/kpidd/arch"
	"golang.org/x/sys/unix"
)

// ErrCorrupt is wrapped by the error of Drain when a ring holds what no kernel
// writes. The source is dead then.
var ErrCorrupt = errors.New("corrupt perf ring")

// ring reads the perf ring of one CPU.
//
// 1. What: the consumer's half of a ring that the kernel fills. Made by newRing
// over the metadata page and the data pages, mapped or ordinary memory. The
// zero value is not usable; not to be copied after first use.
//
// 2. Invariants, as offsets that only grow, in bytes since the ring was made:
//
//	I1  tail <= pos <= limit <= Data_head <= tail + size, size a power of two.
//	I2  Whole records lie between pos and limit; each begins at a multiple of 8.
//	I3  ready: the record at pos is one to deliver, and time and lost are its.
//	I4  told >= recorded: each loss is told at most once (loss.go).
//
// What breaks I1 or I2 in the shared memory is a fault: reading stops for good.
//
// 3. Who: Data_head and the bytes up to tail+size are the kernel's, Data_tail
// and every field here belong to the one goroutine that drains. data, page,
// cpu, fd and mem are immutable.
//
// 4. Ordering:
//
//	A  the kernel stores Data_head after the record; loadHead loads it, with
//	   acquire, before any word of the record.
//	B  release stores Data_tail, with release, after the last word was read;
//	   the kernel loads it before it writes over these bytes.
//
// 5. Staleness: a record committed after loadHead is seen in a later round. A
// word is never read while the kernel may write it, by A, B and I1.
//
// 6. Lifetime: the bytes before pos may be overwritten once released; take
// copies, so an Event outlives them.
//
// 7. Progress: wait-free. peek steps over at most (limit-pos)/32 records.
//
// 8. Source: the layout that perf_event_open(2) documents.
type ring struct {
	// What every record needs, on one cache line.
	data  []uint64 // shared: the records
	pos   uint64   // offset of the next record
	limit uint64   // Data_head as this round sees it
	tail  uint64   // Data_tail as last stored
	time  uint64   // of the record at pos, where ready
	ready bool     // the record at pos is decoded so far as to be merged
	held  bool     // it was ready in an earlier round already
	full  bool     // was almost full at a release: records may have been lost
	gone  bool     // its CPU went offline: nothing more will be written

	page     *unix.PerfEventMmapPage // shared: Data_head the kernel's, Data_tail ours
	lost     uint64                  // to tell for the record at pos, where it is a LOST record
	recorded uint64                  // sum of its LOST records
	told     uint64                  // sum of its Lost events
	fault    string                  // why reading stopped

	cpu int
	fd  int    // -1: no event behind it
	mem []byte // the mapping, where fd >= 0
}

// newRing returns a ring over a metadata page and its data, which must be a
// power of two of 64-bit words, aligned to 8 bytes.
func newRing(cpu, fd int, page *unix.PerfEventMmapPage, data []byte) *ring {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/8)
	return &ring{page: page, data: words, cpu: cpu, fd: fd}
}

// loadHead takes in what the kernel has committed since the last call.
func (r *ring) loadHead() {
	r.held = r.ready
	head := atomic.LoadUint64(&r.page.Data_head) // A
	switch {
	case r.fault != "":
	case head-r.tail > r.size():
		r.fail("head is out of reach of the tail")
	default:
		r.limit = head
	}
}

// peek finds the next record to deliver, at or after pos, and reports whether
// there is one before limit. Where there is none, fault tells corruption from
// the end.
func (r *ring) peek() bool {
	for !r.ready {
		left := r.limit - r.pos
		if left == 0 {
			return false
		}
		if left < recordMin {
			r.fail("rest is shorter than a record")
			return false
		}
		h := header(r.word(r.pos))
		size := h.size()
		if size < shortest(h.kind()) || size%8 != 0 || size > left {
			r.fail("record length is wrong")
			return false
		}
		if !r.inspect(h) {
			r.pos += size
			continue
		}
		// TIME stands second of the three words that sample_id_all puts at
		// the end of every record.
		r.time = r.word(r.pos + size - 16)
		r.ready = true
	}
	return true
}

// release gives the kernel the bytes before pos back. It is called once per
// batch: a store of Data_tail takes its cache line from the CPU that writes.
func (r *ring) release() {
	if r.pos == r.tail {
		return
	}
	if atomic.LoadUint64(&r.page.Data_head)-r.tail > r.size()-r.size()/8 {
		r.full = true
	}
	arch.StoreRelease64(&r.page.Data_tail, r.pos) // B
	r.tail = r.pos
}

// empty reports whether everything that was there at loadHead has been taken.
func (r *ring) empty() bool { return r.pos == r.limit }

// word returns the 64-bit word at an offset. Records lie at multiples of 8, so
// no word is cut in two by the end of the ring.
func (r *ring) word(off uint64) uint64 { return r.data[off/8&uint64(len(r.data)-1)] }

// size returns the length of the ring in bytes.
func (r *ring) size() uint64 { return uint64(len(r.data)) * 8 }

// fail ends the reading of the ring: nothing is left in this round, and
// loadHead brings nothing new.
func (r *ring) fail(why string) {
	r.fault = why
	r.limit = r.pos
	r.ready = false
}

// err returns the ring's fault as an error.
func (r *ring) err() error {
	if r.fault == "" {
		return nil
	}
	return fmt.Errorf("read ring of cpu %d at offset %#x: %s: %w", r.cpu, r.pos, r.fault, ErrCorrupt)
}
