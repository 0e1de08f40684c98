package srcu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/arch/archtest"
)

func TestMain(m *testing.M) { archtest.Main(m, arch.DisableMembarrier) }

func TestSlots(t *testing.T) {
	d := NewDomain()
	var readers []*Reader
	for n := range 2*domainSlots + 1 {
		r := d.Register(fmt.Sprint(n))
		if at := uintptr(unsafe.Pointer(r.slot)); at%arch.CacheLine != 0 {
			t.Errorf("I5: slot %d at %#x", n, at)
		}
		readers = append(readers, r)
	}
	if got := unsafe.Sizeof(domainSlot{}); got != arch.CacheLine {
		t.Errorf("I5: got slots of %d bytes, want %d", got, arch.CacheLine)
	}
	r := readers[3]
	r.ReadUnlock(r.ReadLock())
	reused := r.slot
	r.Unregister()
	r = d.Register("again")
	if r.slot != reused {
		t.Error("I3: a free slot was not reused")
	}
	if r.inside() {
		t.Error("I3: a reused slot is inside a section")
	}
}

// A grace period waits for a section that blocks, on either index, and for the
// outer one of two that nest.
func TestSynchronizeWaits(t *testing.T) {
	for _, flips := range []int{0, 1} {
		d := NewDomain()
		for range flips {
			d.current.Add(1)
		}
		r := d.Register("blocks")
		outer := r.ReadLock()
		r.ReadUnlock(r.ReadLock())
		done := make(chan error)
		go func() { done <- d.Synchronize(context.Background()) }()
		select {
		case err := <-done:
			t.Fatalf("beside a reader inside: got %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		late := d.Register("late")
		index := late.ReadLock()
		if index == outer {
			t.Errorf("flips=%d: a section that begins now counts on index %d, which is waited for", flips, index)
		}
		r.ReadUnlock(outer)
		late.ReadUnlock(index)
		if err := <-done; err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}
}

func TestSynchronizeEnds(t *testing.T) {
	d := NewDomain()
	r := d.Register("handler")
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		index := r.ReadLock()
		close(inside)
		<-leave
		r.ReadUnlock(index)
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	err := d.Synchronize(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `reader "handler"`) {
		t.Errorf("got %v, want the deadline and the reader", err)
	}
	// One that waits for a grace period that runs ends with its context too.
	first := make(chan error)
	go func() { first <- d.Synchronize(context.Background()) }()
	for len(d.grace) == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := d.Synchronize(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("behind another: got %v, want the deadline", err)
	}
	close(leave)
	<-left
	if err := <-first; err != nil {
		t.Errorf("after the reader left: got %v, want nil", err)
	}
}

func TestSynchronizeInside(t *testing.T) {
	var w [2]uint64
	if arch.StoreOwned(&w, 1); w[1] == 0 {
		t.Skip("pure Go without invariants does not know who is inside")
	}
	d, other := NewDomain(), NewDomain()
	r := d.Register("self")
	for range 2 {
		outer := r.ReadLock()
		d.current.Add(1)
		inner := r.ReadLock()
		if err := d.Synchronize(t.Context()); !errors.Is(err, ErrSection) {
			t.Errorf("inside two sections: got %v, want %v", err, ErrSection)
		}
		r.ReadUnlock(inner)
		if err := d.Synchronize(t.Context()); !errors.Is(err, ErrSection) {
			t.Errorf("inside one section: got %v, want %v", err, ErrSection)
		}
		if err := other.Synchronize(t.Context()); err != nil {
			t.Errorf("inside a section of another domain: got %v, want nil", err)
		}
		r.ReadUnlock(outer)
		if err := d.Synchronize(t.Context()); err != nil {
			t.Errorf("outside: got %v, want nil", err)
		}
	}
}

func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDomain()
		r := d.Register("sleeper")
		go func() {
			index := r.ReadLock()
			time.Sleep(25 * time.Second)
			r.ReadUnlock(index)
		}()
		synctest.Wait()
		if got := d.Stalls(0); len(got) != 0 {
			t.Errorf("without a grace period: got %v, want none", got)
		}
		go func() {
			if err := d.Synchronize(context.Background()); err != nil {
				t.Errorf("Synchronize: %v", err)
			}
		}()
		time.Sleep(10 * time.Second)
		got := d.Stalls(time.Second)
		if len(got) != 1 || got[0].Label != "sleeper" || got[0].Age < 9*time.Second || got[0].Age > 10*time.Second {
			t.Errorf("got %v, want the sleeper for nearly 10 s", got)
		}
		time.Sleep(20 * time.Second)
		if got := d.Stalls(0); len(got) != 0 {
			t.Errorf("after all left: got %v, want none", got)
		}
	})
}

func TestMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		always bool
		run    func(r *Reader)
	}{
		"ReadUnlock outside": {false, func(r *Reader) { r.ReadUnlock(0) }},
		"ReadUnlock twice":   {false, func(r *Reader) { i := r.ReadLock(); r.ReadUnlock(i); r.ReadUnlock(i) }},
		"no index":           {true, func(r *Reader) { r.ReadUnlock(2) }},
		"Unregister inside":  {true, func(r *Reader) { r.ReadLock(); r.Unregister() }},
		"use after":          {true, func(r *Reader) { r.Unregister(); r.ReadLock() }},
	} {
		if !c.always && !arch.Invariants {
			continue
		}
		d := NewDomain()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", name)
				}
			}()
			c.run(d.Register("x"))
		}()
		d.Register("the domain stays usable").Unregister()
	}
}

func TestAllocs(t *testing.T) {
	if arch.Invariants && !arch.LightStores {
		t.Skip("invariants without assembly read the goroutine's number from a stack trace")
	}
	d := NewDomain()
	r := d.Register("x")
	if got := testing.AllocsPerRun(100, func() {
		r.ReadUnlock(r.ReadLock())
		if err := d.Synchronize(t.Context()); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestInlined(t *testing.T) {
	archtest.Inlined(t, "(*Reader).ReadLock", "(*Reader).ReadUnlock")
}

func ExampleDomain() {
	d := NewDomain()
	r := d.Register("example")

	index := r.ReadLock()
	// Look something up, use it, block if need be.
	r.ReadUnlock(index)

	// Unlink it, then wait until nobody can have it.
	fmt.Println(d.Synchronize(context.Background()))
	// Output: <nil>
}
