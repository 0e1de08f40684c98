package seqlock

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// record is a generated type behind slices, so that one suite runs over all.
type record interface {
	TryRead(dst []uint64) bool
	Read(dst []uint64) bool
	Write(src []uint64)
	Seq() uint64
	words() []uint64 // the record itself
}

type rec32 struct{ *Rec32 }

func (r rec32) TryRead(dst []uint64) bool { return r.Rec32.TryRead((*[3]uint64)(dst)) }
func (r rec32) Read(dst []uint64) bool    { return r.Rec32.Read((*[3]uint64)(dst)) }
func (r rec32) Write(src []uint64)        { r.Rec32.Write((*[3]uint64)(src)) }
func (r rec32) words() []uint64           { return r.w[:] }

type rec64 struct{ *Rec64 }

func (r rec64) TryRead(dst []uint64) bool { return r.Rec64.TryRead((*[7]uint64)(dst)) }
func (r rec64) Read(dst []uint64) bool    { return r.Rec64.Read((*[7]uint64)(dst)) }
func (r rec64) Write(src []uint64)        { r.Rec64.Write((*[7]uint64)(src)) }
func (r rec64) words() []uint64           { return r.w[:] }

type rec128 struct{ *Rec128 }

func (r rec128) TryRead(dst []uint64) bool { return r.Rec128.TryRead((*[15]uint64)(dst)) }
func (r rec128) Read(dst []uint64) bool    { return r.Rec128.Read((*[15]uint64)(dst)) }
func (r rec128) Write(src []uint64)        { r.Rec128.Write((*[15]uint64)(src)) }
func (r rec128) words() []uint64           { return r.w[:] }

type rec256 struct{ *Rec256 }

func (r rec256) TryRead(dst []uint64) bool { return r.Rec256.TryRead((*[31]uint64)(dst)) }
func (r rec256) Read(dst []uint64) bool    { return r.Rec256.Read((*[31]uint64)(dst)) }
func (r rec256) Write(src []uint64)        { r.Rec256.Write((*[31]uint64)(src)) }
func (r rec256) words() []uint64           { return r.w[:] }

func eachRecord(t *testing.T, run func(t *testing.T, r record)) {
	for _, r := range []record{rec32{new(Rec32)}, rec64{new(Rec64)}, rec128{new(Rec128)}, rec256{new(Rec256)}} {
		t.Run(fmt.Sprintf("bytes=%d", 8*len(r.words())), func(t *testing.T) { run(t, r) })
	}
}

func TestRecordSize(t *testing.T) {
	for want, got := range map[uintptr]uintptr{
		32:  unsafe.Sizeof(Rec32{}),
		64:  unsafe.Sizeof(Rec64{}),
		128: unsafe.Sizeof(Rec128{}),
		256: unsafe.Sizeof(Rec256{}),
	} {
		if got != want {
			t.Errorf("got a record of %d bytes, want %d", got, want)
		}
	}
}

func TestRecordRoundTrip(t *testing.T) {
	eachRecord(t, func(t *testing.T, r record) {
		n := len(r.words()) - 1
		src, dst := make([]uint64, n), make([]uint64, n)
		if !r.Read(dst) || r.Seq() != 0 {
			t.Error("the zero record does not read as a whole write")
		}
		for round := range uint64(3) {
			for i := range src {
				src[i] = ^round<<8 | uint64(i)
			}
			r.Write(src)
			clear(dst)
			for name, read := range map[string]func([]uint64) bool{"TryRead": r.TryRead, "Read": r.Read} {
				if !read(dst) {
					t.Errorf("%s after write %d: got false, want true", name, round)
				}
				for i := range src {
					if dst[i] != src[i] {
						t.Errorf("%s after write %d, word %d: got %#x, want %#x", name, round, i, dst[i], src[i])
					}
				}
			}
			if got, want := r.Seq(), 2*(round+1); got != want {
				t.Errorf("sequence after write %d: got %d, want %d", round, got, want)
			}
		}
	})
}

// A writer that died inside a write: Read gives up within its bound, and the
// next write heals the record.
func TestRecordUnstable(t *testing.T) {
	eachRecord(t, func(t *testing.T, r record) {
		buf := make([]uint64, len(r.words())-1)
		r.words()[0] = 5
		if r.TryRead(buf) {
			t.Error("TryRead inside a write: got true, want false")
		}
		begin := time.Now()
		if r.Read(buf) {
			t.Error("Read inside a write: got true, want false")
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("Read gave up after %v, want much less than a second", took)
		}
		r.Write(buf)
		if !r.Read(buf) || r.Seq() != 6 {
			t.Errorf("after the next write: sequence %d, want 6 and a readable record", r.Seq())
		}
	})
}

// A read that finds a writer at work waits for it.
func TestRecordReadWaits(t *testing.T) {
	eachRecord(t, func(t *testing.T, r record) {
		buf := make([]uint64, len(r.words())-1)
		for range 50 {
			seq := &r.words()[0]
			atomic.AddUint64(seq, 1)
			started := make(chan struct{})
			go func() {
				close(started)
				atomic.AddUint64(seq, 1)
			}()
			<-started
			for !r.Read(buf) {
				runtime.Gosched()
			}
			if got := r.Seq(); got&1 != 0 {
				t.Fatalf("sequence after Read: got %d, want an even one", got)
			}
		}
	})
}

// Readers need no right to write: they work over a mapping that has none.
func TestRecordReadOnlyMapping(t *testing.T) {
	page, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("map a page: %v", err)
	}
	defer syscall.Munmap(page)
	records := []record{
		rec32{(*Rec32)(unsafe.Pointer(&page[0]))},
		rec64{(*Rec64)(unsafe.Pointer(&page[64]))},
		rec128{(*Rec128)(unsafe.Pointer(&page[128]))},
		rec256{(*Rec256)(unsafe.Pointer(&page[256]))},
	}
	last := func(r record) (buf []uint64, last *uint64) {
		buf = make([]uint64, len(r.words())-1)
		return buf, &buf[len(buf)-1]
	}
	for n, r := range records {
		src, end := last(r)
		*end = uint64(n) + 7
		r.Write(src)
	}
	if err := syscall.Mprotect(page, syscall.PROT_READ); err != nil {
		t.Fatalf("protect the page: %v", err)
	}
	for n, r := range records {
		dst, end := last(r)
		if want := uint64(n) + 7; !r.Read(dst) || *end != want {
			t.Errorf("%d bytes: got %v, want %d as the last word", 8*len(r.words()), dst, want)
		}
	}
}

func TestStressRecordTorn(t *testing.T) {
	limit := 300 * time.Millisecond
	if testing.Short() {
		limit = 30 * time.Millisecond
	}
	eachRecord(t, func(t *testing.T, r record) {
		reads, err := torn(r, r.Write, limit)
		if err != nil {
			t.Error(err)
		}
		if reads == 0 {
			t.Error("no read succeeded: the check saw nothing")
		}
	})
}

// A writer that marks the record even too early must be caught by the same check.
func TestStressRecordTornCatchesBusted(t *testing.T) {
	eachRecord(t, func(t *testing.T, r record) {
		w := r.words()
		busted := func(src []uint64) {
			atomic.AddUint64(&w[0], 1)
			for i := range src {
				if i == len(src)/2 {
					atomic.AddUint64(&w[0], 1) // C, too early
					runtime.Gosched()
				}
				atomic.StoreUint64(&w[i+1], src[i])
			}
		}
		if _, err := torn(r, busted, 10*time.Second); err == nil {
			t.Error("a writer that ends its section too early was not caught")
		}
	})
}

// torn lets one writer store payloads of equal words, in rising order, while
// readers check that they get such payloads and never an older one than before.
func torn(r record, write func(src []uint64), limit time.Duration) (reads uint64, err error) {
	n := len(r.words()) - 1
	var stop atomic.Bool
	var total atomic.Uint64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			dst, last := make([]uint64, n), uint64(0)
			for !stop.Load() {
				if !r.Read(dst) {
					continue
				}
				total.Add(1)
				for i, w := range dst {
					if w != dst[0] || w < last {
						e := fmt.Errorf("word %d is %d beside %d, after a payload of %d", i, w, dst[0], last)
						failed.CompareAndSwap(nil, &e)
						stop.Store(true)
						return
					}
				}
				last = dst[0]
			}
		})
	}
	src := make([]uint64, n)
	end := time.Now().Add(limit)
	for k := uint64(1); !stop.Load(); k++ {
		for i := range src {
			src[i] = k
		}
		write(src)
		if k%64 == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				stop.Store(true)
			}
		}
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return total.Load(), *e
	}
	return total.Load(), nil
}

func TestRecordAllocs(t *testing.T) {
	var a Rec32
	var b Rec64
	var c Rec128
	var d Rec256
	var buf32 [3]uint64
	var buf64 [7]uint64
	var buf128 [15]uint64
	var buf256 [31]uint64
	if got := testing.AllocsPerRun(100, func() {
		a.Write(&buf32)
		a.Read(&buf32)
		b.Write(&buf64)
		b.Read(&buf64)
		c.Write(&buf128)
		c.Read(&buf128)
		d.Write(&buf256)
		d.Read(&buf256)
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func ExampleRec128() {
	var r Rec128
	r.Write(&[15]uint64{1, 2, 3})

	var got [15]uint64
	fmt.Println(r.Read(&got), got[:3])
	// Output: true [1 2 3]
}

func ExampleRec64() {
	var r Rec64
	r.Write(&[7]uint64{4, 5})

	var got [7]uint64
	fmt.Println(r.TryRead(&got), got[:2])
	// Output: true [4 5]
}

func ExampleRec32() {
	var r Rec32
	r.Write(&[3]uint64{6, 7})

	var got [3]uint64
	fmt.Println(r.Read(&got), got, r.Seq())
	// Output: true [6 7 0] 2
}

func ExampleRec256() {
	var r Rec256
	r.Write(&[31]uint64{30: 9})

	var got [31]uint64
	fmt.Println(r.Read(&got), got[30])
	// Output: true 9
}
