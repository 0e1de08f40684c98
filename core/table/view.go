package table

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/kpidd/kpidd/generated/radix"
	"github.com/kpidd/kpidd/generated/seqlock"
)

// Shape of the records that this build writes; a reader takes them from the header.
const (
	pageBytes       = 4096
	recordBytes     = 128
	recordsPerChunk = 512 // 64 KiB
	recordsMax      = radix.Tree22Keys
)

// ErrFormat is wrapped by every refusal of a file that is no usable table.
var ErrFormat = errors.New("not a usable kpidd table")

// View is a mapped table, as its readers and its writer both see it. A View is
// immutable; what it points at changes all the time.
//
//  1. Made by newView over a whole mapping; not to be copied by value needlessly,
//     though copies are equal.
//  2. I1: every offset, stride and count that the View uses was checked against
//     the length of the mapping when it was made and is never re-read. I2: a
//     record is touched only below ChunksUsed chunks, a leaf page of the tree
//     only if the directory marks it present; both are marked after their memory
//     was allocated.
//  3. One Writer, in one process, stores; any number of Views read.
//  4. A: the writer stores a record before the tree's slot that names it (radix,
//     A), and a chunk's memory before ChunksUsed; record loads ChunksUsed after it
//     found the slot.
//  5. A reader may see a slot whose task has just gone: the record then bears
//     another TID, or none, and the caller skips it (Reader does). It never sees
//     half of one record and half of another: seqlock.
//  6. Hot values are copies and live as long as the caller likes; slot numbers
//     mean nothing once the lookup is over, since observe mode reuses them at once.
//  7. Lock-free, bounded: Read gives up after the seqlock's bound when a writer
//     was stopped inside a write, and says so.
//  8. Source: DESIGN.md "The published table"; Varnish's VSM for the file's life.
type View struct {
	hdr      *Header
	tree     *radix.Tree22
	records  unsafe.Pointer
	stride   uintptr
	perChunk uint32
	chunks   uint32 // most chunks that fit in the mapping
}

// offsets of a table made by this build.
type layout struct{ dir, tags, slots, records, size uint64 }

func currentLayout() (l layout) {
	up := func(n uint64) uint64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }
	l.dir = HeaderBytes
	l.tags = up(l.dir + radix.Tree22DirBytes)
	l.slots = up(l.tags + radix.Tree22TagBytes)
	l.records = up(l.slots + radix.Tree22SlotBytes)
	l.size = l.records + chunksMax*recordsPerChunk*recordBytes
	return l
}

// One chunk more than the records fill, since slot 0 is never used.
const chunksMax = recordsMax/recordsPerChunk + 1

// newView checks the header in mem against mem's length and this build's
// version. back is the tree's, nil for readers.
func newView(mem []byte, back func(page int) error) (View, error) {
	if len(mem) < HeaderBytes {
		return View{}, fmt.Errorf("%w: %d bytes are too few", ErrFormat, len(mem))
	}
	h := (*Header)(unsafe.Pointer(&mem[0]))
	size := uint64(len(mem))
	region := func(off, n uint64) bool { return off%8 == 0 && off >= HeaderBytes && off <= size && n <= size-off }
	records := uint64(h.RecordStride) * uint64(h.RecordsPerChunk) * uint64(h.ChunksMax)
	switch {
	case h.Magic != ABIMagic:
		return View{}, fmt.Errorf("%w: wrong magic", ErrFormat)
	case h.ByteOrder != ABIByteOrder:
		return View{}, fmt.Errorf("%w: written with another byte order", ErrFormat)
	case h.Major != ABIMajor:
		return View{}, fmt.Errorf("%w: layout version %d, this kpidd reads %d; use the kpidd that runs the daemon", ErrFormat, h.Major, ABIMajor)
	case h.FileBytes > size:
		return View{}, fmt.Errorf("%w: truncated (%d of %d bytes)", ErrFormat, size, h.FileBytes)
	case h.RecordStride < recordBytes || h.RecordStride%8 != 0 || h.RecordStride > 1<<16,
		h.RecordsPerChunk == 0 || h.RecordsPerChunk > 1<<20, h.ChunksMax > 1<<20,
		!region(h.DirOff, radix.Tree22DirBytes), !region(h.TagOff, radix.Tree22TagBytes),
		!region(h.SlotOff, radix.Tree22SlotBytes), !region(h.RecordOff, records):
		return View{}, fmt.Errorf("%w: corrupt header", ErrFormat)
	}
	tree, err := radix.NewTree22(radix.Tree22Memory{
		Dir:   mem[h.DirOff:][:radix.Tree22DirBytes:radix.Tree22DirBytes],
		Tags:  mem[h.TagOff:][:radix.Tree22TagBytes:radix.Tree22TagBytes],
		Slots: mem[h.SlotOff:][:radix.Tree22SlotBytes:radix.Tree22SlotBytes],
	}, back)
	if err != nil {
		return View{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return View{
		hdr:      h,
		tree:     tree,
		records:  unsafe.Pointer(&mem[h.RecordOff]),
		stride:   uintptr(h.RecordStride),
		perChunk: h.RecordsPerChunk,
		chunks:   h.ChunksMax,
	}, nil
}

// Header is the mapped header. Its live words are to be loaded atomically.
func (v *View) Header() *Header { return v.hdr }

// Tree maps pid numbers to slots. Only the Writer may change it.
func (v *View) Tree() *radix.Tree22 { return v.tree }

// Read copies the record in slot. It is false if slot is not in the allocated
// part of the table or if no stable copy could be had within the bound: then h
// is not valid.
func (v *View) Read(slot uint32, h *Hot) bool {
	r := v.record(slot)
	return r != nil && r.Read((*[15]uint64)(unsafe.Pointer(h)))
}

// record is nil for a slot outside the allocated chunks.
func (v *View) record(slot uint32) *seqlock.Rec128 {
	used := min(atomic.LoadUint32(&v.hdr.ChunksUsed), v.chunks) // A
	if slot == 0 || slot >= used*v.perChunk {
		return nil
	}
	return (*seqlock.Rec128)(unsafe.Add(v.records, uintptr(slot)*v.stride))
}
