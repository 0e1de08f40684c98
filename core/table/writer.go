package table

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/generated/radix"
	"github.com/kpidd/kpidd/generated/seqlock"
	"golang.org/x/sys/unix"
)

// ErrFull is returned when a new slot needs memory that is not to be had. The
// table goes on with what it has and says so in its header.
var ErrFull = errors.New("the table has no room for another task; free memory of its tmpfs, or choose a larger one with --runtime-dir")

// Writer is the one writer of a table. It is not safe for concurrent use; the
// engine's lock guards it. Readers, in this process or others, need no lock.
type Writer struct {
	View
	seg  *segment
	next uint32   // lowest slot never used
	free []uint32 // slots given back, reused last in first out so that the table stays dense
}

// Origin identifies the daemon that writes a table.
type Origin struct {
	BootID     string
	PID        uint32
	StartTicks uint64 // of PID
	Source     string // event source, at most 16 bytes
	Tells      uint64 // what the source tells, a live.Tells set
	ClockTicks uint32 // USER_HZ
}

// Create makes a table in dir, in state TableStarting, which readers do not see
// before Publish.
func Create(dir *Dir, o Origin) (*Writer, error) {
	seg, err := newSegment(dir.Path, currentLayout().size)
	if err != nil {
		return nil, err
	}
	w, err := newWriter(seg, o)
	if err != nil {
		seg.discard()
		return nil, err
	}
	return w, nil
}

// NewAnonymous makes a table in memory of this process alone, for the engine as
// a library and for tests.
func NewAnonymous() (*Writer, error) {
	seg, err := anonymousSegment(currentLayout().size)
	if err != nil {
		return nil, err
	}
	return newWriter(seg, Origin{PID: uint32(os.Getpid())})
}

func newWriter(seg *segment, o Origin) (*Writer, error) {
	l := currentLayout()
	if err := seg.back(0, l.tags); err != nil { // the header and the tree's directory
		return nil, err
	}
	h := (*Header)(unsafe.Pointer(&seg.mem[0]))
	*h = Header{
		Magic: ABIMagic, Major: ABIMajor, Minor: ABIMinor, ByteOrder: ABIByteOrder,
		HeaderBytes: HeaderBytes, FileBytes: l.size,
		DirOff: l.dir, TagOff: l.tags, SlotOff: l.slots, RecordOff: l.records,
		RecordStride: recordBytes, RecordsPerChunk: recordsPerChunk, ChunksMax: chunksMax,
		ClockTicks: o.ClockTicks, DaemonGen: WallNs(), WriterPID: o.PID, WriterStartTicks: o.StartTicks,
		State: TableStarting, BootWallNs: WallNs() - BoottimeNs(), Tells: o.Tells,
	}
	copy(h.BootID[:], o.BootID)
	copy(h.Source[:], o.Source)
	w := &Writer{seg: seg, next: 1}
	view, err := newView(seg.mem, func(page int) error {
		p := uint64(page)
		if err := seg.back(l.tags+p*radix.Tree22PageTagBytes, radix.Tree22PageTagBytes); err != nil {
			return w.full(err)
		}
		if err := seg.back(l.slots+p*radix.Tree22PageSlotBytes, radix.Tree22PageSlotBytes); err != nil {
			return w.full(err)
		}
		w.roomy()
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.View = view
	return w, nil
}

// full records that memory ran out.
func (w *Writer) full(err error) error {
	atomic.StoreUint32(&w.hdr.Full, 1)
	return fmt.Errorf("%w: %w", ErrFull, err)
}

// roomy takes back that memory ran out: a task has found room.
func (w *Writer) roomy() {
	if atomic.LoadUint32(&w.hdr.Full) != 0 {
		atomic.StoreUint32(&w.hdr.Full, 0)
	}
}

// Publish lets readers find the table and marks it live.
func (w *Writer) Publish() error {
	w.Beat()
	atomic.StoreUint32(&w.hdr.State, TableLive)
	return w.seg.publish()
}

// NewSlot returns an unused slot. ErrFull: no memory for another chunk.
func (w *Writer) NewSlot() (uint32, error) {
	if n := len(w.free); n > 0 {
		slot := w.free[n-1]
		w.free = w.free[:n-1]
		w.roomy()
		return slot, nil
	}
	if used := atomic.LoadUint32(&w.hdr.ChunksUsed); w.next >= used*recordsPerChunk {
		if used == chunksMax {
			return 0, ErrFull
		}
		const chunk = recordsPerChunk * recordBytes
		if err := w.seg.back(w.hdr.RecordOff+uint64(used)*chunk, chunk); err != nil {
			return 0, w.full(err)
		}
		w.roomy()
		atomic.StoreUint32(&w.hdr.ChunksUsed, used+1) // A
	}
	slot := w.next
	w.next++
	return slot, nil
}

// FreeSlot clears a record and gives its slot back. The caller has taken it out
// of the tree before, so that only a reader that is already under way meets it.
func (w *Writer) FreeSlot(slot uint32) {
	w.Put(slot, &Hot{})
	w.free = append(w.free, slot)
}

// Put stores a whole record; readers see the old one or the new one.
func (w *Writer) Put(slot uint32, h *Hot) {
	w.at(slot).Write((*[15]uint64)(unsafe.Pointer(h)))
}

// Get copies the record in slot. Only for the writer, who needs no retry.
func (w *Writer) Get(slot uint32, h *Hot) {
	if !w.at(slot).TryRead((*[15]uint64)(unsafe.Pointer(h))) {
		panic(fmt.Sprintf("table: record %d changed under its writer", slot))
	}
}

func (w *Writer) at(slot uint32) *seqlock.Rec128 {
	return (*seqlock.Rec128)(unsafe.Add(w.records, uintptr(slot)*recordBytes))
}

// Bump adds n to a counter of the header. The Writer is its only writer.
func (w *Writer) Bump(counter *uint64, n uint64) {
	arch.StoreRelease64(counter, atomic.LoadUint64(counter)+n)
}

// Set stores a live word of the header.
func (w *Writer) Set(word *uint64, v uint64) { arch.StoreRelease64(word, v) }

// Beat tells readers that the writer lives.
func (w *Writer) Beat() { w.Set(&w.hdr.HeartbeatNs, MonotonicNs()) }

// Bytes is the memory that the table takes: what was allocated, not its sparse
// size.
func (w *Writer) Bytes() uint64 {
	if w.seg.file != nil {
		var st unix.Stat_t
		if unix.Fstat(int(w.seg.file.Fd()), &st) == nil {
			return uint64(st.Blocks) * 512
		}
	}
	h := w.hdr
	return h.TagOff + uint64(w.tree.Pages())*(radix.Tree22PageTagBytes+radix.Tree22PageSlotBytes) +
		uint64(atomic.LoadUint32(&h.ChunksUsed))*recordsPerChunk*recordBytes
}

// Close marks the table dead, removes its names and unmaps it. No method may be
// called afterwards.
func (w *Writer) Close() error {
	atomic.StoreUint32(&w.hdr.State, TableDead)
	err := w.seg.remove()
	if e := unix.Munmap(w.seg.mem); err == nil {
		err = e
	}
	return err
}

// Path is the name under which readers find the table, "" if it has none.
func (w *Writer) Path() string { return w.seg.name }
