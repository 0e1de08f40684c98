package epoch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch/archtest"
)

// writer is a generated type, so that one suite runs over all.
type writer[H any] interface {
	Defer(handle H, bytes uint32) error
	Flush() error
	Barrier(ctx context.Context) error
	Backlog() (items int, bytes uint64)
}

func eachWriter(t *testing.T, run32 func(t *testing.T, new func(d *Domain, reclaim func([]uint32)) writer[uint32]),
	run64 func(t *testing.T, new func(d *Domain, reclaim func([]uint64)) writer[uint64])) {
	t.Run("handle=32", func(t *testing.T) {
		run32(t, func(d *Domain, reclaim func([]uint32)) writer[uint32] { return NewWriter32(d, reclaim) })
	})
	t.Run("handle=64", func(t *testing.T) {
		run64(t, func(d *Domain, reclaim func([]uint64)) writer[uint64] { return NewWriter64(d, reclaim) })
	})
}

// newWriter makes a writer of a domain.
type newWriter[H any] = func(d *Domain, reclaim func([]H)) writer[H]

// collector checks that handles come back once and in order.
type collector[H uint32 | uint64] struct {
	t    *testing.T
	next H
}

func (c *collector[H]) reclaim(handles []H) {
	for _, h := range handles {
		if h != c.next {
			c.t.Errorf("I3: reclaimed %d, want %d", h, c.next)
		}
		c.next = h + 1
	}
}

func TestWriterOrder(t *testing.T) {
	eachWriter(t, testWriterOrder[uint32], testWriterOrder[uint64])
}

func testWriterOrder[H uint32 | uint64](t *testing.T, new newWriter[H]) {
	c := &collector[H]{t: t}
	w := new(NewDomain(), c.reclaim)
	r := rand.New(rand.NewPCG(1, 2))
	n := H(0)
	for n < 5*writer32Items {
		if err := w.Defer(n, 3); err != nil {
			t.Fatalf("Defer without readers: %v", err)
		}
		n++
		items, bytes := w.Backlog()
		if items != int(n-c.next) || bytes != 3*uint64(items) {
			t.Fatalf("backlog: got %d items, %d bytes, want %d items", items, bytes, n-c.next)
		}
		if items > writer32Batch {
			t.Fatalf("backlog without readers: got %d items, want at most a batch of %d", items, writer32Batch)
		}
		if r.IntN(3*writer32Batch) == 0 {
			if err := w.Flush(); err != nil || c.next != n {
				t.Fatalf("Flush: got %v and %d reclaimed, want %d", err, c.next, n)
			}
		}
	}
	if err := w.Barrier(t.Context()); err != nil || c.next != n {
		t.Errorf("Barrier: got %v and %d reclaimed, want %d", err, c.next, n)
	}
	if items, bytes := w.Backlog(); items != 0 || bytes != 0 {
		t.Errorf("backlog after Barrier: got %d items, %d bytes, want none", items, bytes)
	}
}

// A flood beside a reader that stays stops at the bounds and loses nothing.
func TestWriterBacklog(t *testing.T) {
	eachWriter(t, testWriterBacklog[uint32], testWriterBacklog[uint64])
}

func testWriterBacklog[H uint32 | uint64](t *testing.T, new newWriter[H]) {
	for name, c := range map[string]struct {
		bytes uint32
		want  int
	}{
		"items": {0, writer32Items},
		"bytes": {writer32Bytes / 3, 3},
		"large": {writer32Bytes + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d, back := NewDomain(), &collector[H]{t: t}
			w := new(d, back.reclaim)
			r := d.Register("stays")
			enter, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				r.Enter()
				close(enter)
				<-leave
				r.Exit()
				close(left)
			}()
			<-enter
			n := H(0)
			for w.Defer(n, c.bytes) == nil {
				n++
			}
			if int(n) != c.want {
				t.Errorf("got %d handles before the bound, want %d", n, c.want)
			}
			if err := w.Defer(n, c.bytes); !errors.Is(err, ErrBacklog) {
				t.Errorf("above the bound: got %v, want %v", err, ErrBacklog)
			}
			if back.next != 0 {
				t.Errorf("reclaimed %d handles beside a reader inside", back.next)
			}
			if stalls := d.Stalls(0); n > 0 && (len(stalls) != 1 || stalls[0].Label != "stays") {
				t.Errorf("stalled readers: got %v, want the one that stays", stalls)
			}
			if n > 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if err := w.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Barrier beside a reader inside: got %v, want the deadline", err)
				}
			}
			close(leave)
			<-left
			if err := w.Barrier(t.Context()); err != nil || back.next != n {
				t.Errorf("Barrier: got %v and %d reclaimed, want %d", err, back.next, n)
			}
			if err := w.Defer(n, 1); err != nil {
				t.Errorf("Defer after the flood: got %v, want nil", err)
			}
		})
	}
}

// More batches than marks: the newest ones share a grace period.
func TestWriterMarks(t *testing.T) {
	if writer32Items <= writer32Marks {
		t.Skip("the ring is smaller than the marks")
	}
	eachWriter(t, testWriterMarks[uint32], testWriterMarks[uint64])
}

func testWriterMarks[H uint32 | uint64](t *testing.T, new newWriter[H]) {
	d, back := NewDomain(), &collector[H]{t: t}
	w := new(d, back.reclaim)
	r := d.Register("stays")
	r.Enter()
	const n = 3 * writer32Marks
	for h := range n {
		if err := w.Defer(H(h), 5); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if items, bytes := w.Backlog(); items != n || bytes != 5*n || back.next != 0 {
		t.Errorf("got a backlog of %d items, %d bytes, %d reclaimed, want %d items", items, bytes, back.next, n)
	}
	r.Exit()
	if err := w.Flush(); err != nil || back.next != n {
		t.Errorf("Flush: got %v and %d reclaimed, want %d", err, back.next, n)
	}
	if _, bytes := w.Backlog(); bytes != 0 {
		t.Errorf("got %d bytes, want 0", bytes)
	}
}

// slab is a table of slots that readers find by a cell and a writer replaces.
type slab struct {
	cells  [8]atomic.Uint32
	slots  []atomic.Uint64 // generation, 0 while free
	free   []uint32
	stop   atomic.Bool
	failed atomic.Pointer[error]
	reads  atomic.Uint64
}

func (s *slab) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.stop.Store(true)
}

func (s *slab) read(d *Domain, seed uint64) {
	r := d.Register(fmt.Sprint("reader ", seed))
	defer func() { r.Unregister() }()
	random := rand.New(rand.NewPCG(3, seed))
	for n := 0; !s.stop.Load(); n++ {
		r.Enter()
		slot := s.cells[n%len(s.cells)].Load()
		first := s.slots[slot].Load()
		if random.IntN(500) == 0 {
			runtime.Gosched()
		}
		if random.IntN(50_000) == 0 {
			time.Sleep(3 * time.Millisecond)
		}
		last := s.slots[slot].Load()
		r.Exit()
		if first == 0 || last != first {
			s.fail(fmt.Errorf("slot %d was reused under a reader: generation %d, then %d", slot, first, last))
		}
		s.reads.Add(1)
		if n%4096 == 4095 {
			r.Unregister()
			r = d.Register("again")
		}
	}
}

// stressSlab replaces slots as fast as it can, and returns how many.
func stressSlab(d *Domain, new newWriter[uint32], limit time.Duration) (s *slab, replaced int, err error) {
	s = &slab{slots: make([]atomic.Uint64, writer32Items+64)}
	for i := range s.slots {
		s.free = append(s.free, uint32(i))
	}
	generation := uint64(0)
	take := func() uint32 {
		slot := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		generation++
		s.slots[slot].Store(generation)
		return slot
	}
	for i := range s.cells {
		s.cells[i].Store(take())
	}
	w := new(d, func(slots []uint32) {
		for _, slot := range slots {
			s.slots[slot].Store(0)
			s.free = append(s.free, slot)
		}
	})
	var wg sync.WaitGroup
	for seed := range uint64(2) {
		wg.Go(func() { s.read(d, seed) })
	}
	end := time.Now().Add(limit)
	for ; !s.stop.Load(); replaced++ {
		cell := &s.cells[replaced%len(s.cells)]
		old := cell.Swap(take())
		for s.failed.Load() == nil {
			err := w.Defer(old, 64)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrBacklog) {
				s.fail(err)
			} else if err := w.Barrier(context.Background()); err != nil {
				s.fail(err)
			}
		}
		if replaced%256 == 0 && time.Now().After(end) {
			s.stop.Store(true)
		}
	}
	wg.Wait()
	if err := w.Barrier(context.Background()); err != nil {
		s.fail(err)
	}
	if want := len(s.slots) - len(s.cells); s.failed.Load() == nil && len(s.free) != want {
		s.fail(fmt.Errorf("%d slots are free, want %d", len(s.free), want))
	}
	if err := s.failed.Load(); err != nil {
		return s, replaced, *err
	}
	return s, replaced, nil
}

func TestStressWriter(t *testing.T) {
	archtest.SkipStoreBuffering(t)
	s, replaced, err := stressSlab(NewDomain(), func(d *Domain, reclaim func([]uint32)) writer[uint32] {
		return NewWriter32(d, reclaim)
	}, archtest.StressTime())
	if err != nil {
		t.Error(err)
	}
	if s.reads.Load() == 0 || replaced < 2*writer32Batch {
		t.Errorf("%d reads, %d slots replaced: the check saw nothing", s.reads.Load(), replaced)
	}
	t.Logf("%d reads, %d slots replaced", s.reads.Load(), replaced)
}

// A writer that tags its batches with an epoch from before the unlinks.
func TestStressWriterCatchesBusted(t *testing.T) {
	archtest.MustCatch(t, func(limit time.Duration) bool {
		s, replaced, err := stressSlab(NewDomain(), func(d *Domain, reclaim func([]uint32)) writer[uint32] {
			return NewBustedWriter(d, reclaim)
		}, limit)
		t.Logf("%d reads, %d slots replaced: %v", s.reads.Load(), replaced, err)
		return err != nil
	})
}

func TestDeferAllocs(t *testing.T) {
	d := NewDomain()
	w32 := NewWriter32(d, func([]uint32) {})
	w64 := NewWriter64(d, func([]uint64) {})
	if got := testing.AllocsPerRun(10, func() {
		for n := range uint64(3 * writer32Batch) {
			if w32.Defer(uint32(n), 1) != nil || w64.Defer(n, 1) != nil {
				t.Error("Defer without readers failed")
			}
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func ExampleWriter32() {
	d := NewDomain()
	w := NewWriter32(d, func(slots []uint32) { fmt.Println("free again:", slots) })

	// Unlink slots 7 and 8, then:
	fmt.Println(w.Defer(7, 128), w.Defer(8, 128))
	fmt.Println(w.Barrier(context.Background()))
	// Output:
	// <nil> <nil>
	// free again: [7 8]
	// <nil>
}

func ExampleWriter64() {
	d := NewDomain()
	w := NewWriter64(d, func(ids []uint64) { fmt.Printf("free again: %#x\n", ids) })
	const generation, id = 2, 7
	fmt.Println(w.Defer(generation<<32|id, 128), w.Flush())
	// Output:
	// free again: [0x200000007]
	// <nil> <nil>
}
