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

func eachRecord(t *testing.T, run func(t *testing.T, r record)) {
	t.Run("bytes=64", func(t *testing.T) { run(t, rec64{new(Rec64)}) })
	t.Run("bytes=128", func(t *testing.T) { run(t, rec128{new(Rec128)}) })
}

func TestRecordSize(t *testing.T) {
	if got := unsafe.Sizeof(Rec64{}); got != 64 {
		t.Errorf("Rec64: got %d bytes, want 64", got)
	}
	if got := unsafe.Sizeof(Rec128{}); got != 128 {
		t.Errorf("Rec128: got %d bytes, want 128", got)
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
	a, b := (*Rec64)(unsafe.Pointer(&page[0])), (*Rec128)(unsafe.Pointer(&page[128]))
	a.Write(&[7]uint64{6: 7})
	b.Write(&[15]uint64{14: 8})
	if err := syscall.Mprotect(page, syscall.PROT_READ); err != nil {
		t.Fatalf("protect the page: %v", err)
	}
	var dst64 [7]uint64
	var dst128 [15]uint64
	if !a.Read(&dst64) || dst64[6] != 7 {
		t.Errorf("64 bytes: got %v, want 7 as the last word", dst64)
	}
	if !b.Read(&dst128) || dst128[14] != 8 {
		t.Errorf("128 bytes: got %v, want 8 as the last word", dst128)
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
	var a Rec64
	var b Rec128
	var buf64 [7]uint64
	var buf128 [15]uint64
	if got := testing.AllocsPerRun(100, func() {
		a.Write(&buf64)
		a.Read(&buf64)
		b.Write(&buf128)
		b.Read(&buf128)
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
