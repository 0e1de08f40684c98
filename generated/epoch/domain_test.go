package epoch

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

// slowDomainDelay is called inside the Enter of SlowDomain's readers.
var slowDomainDelay = func() {}

func TestEpochAdvances(t *testing.T) {
	d := NewDomain()
	for want := uint64(1); want < 5; want++ {
		if got := d.epoch.Load(); got != want {
			t.Errorf("epoch: got %d, want %d", got, want)
		}
		if err := d.Synchronize(t.Context()); err != nil {
			t.Errorf("Synchronize without readers: got %v, want nil", err)
		}
	}
}

func TestSlots(t *testing.T) {
	d := NewDomain()
	var readers []*Reader
	for n := range 3*domainSlots + 1 {
		r := d.Register(fmt.Sprint(n))
		if at := uintptr(unsafe.Pointer(r.slot)); at%arch.CacheLine != 0 {
			t.Errorf("I5: slot %d at %#x", n, at)
		}
		readers = append(readers, r)
	}
	if got := unsafe.Sizeof(domainSlot{}); got != arch.CacheLine {
		t.Errorf("I5: got slots of %d bytes, want %d", got, arch.CacheLine)
	}
	slots := len(*d.slots.Load())
	reused := readers[5].slot
	readers[5].Unregister()
	if r := d.Register("again"); r.slot != reused {
		t.Error("I3: a free slot was not reused")
	}
	if got := len(*d.slots.Load()); got != slots {
		t.Errorf("I3: got %d slots after a reader went and came, want %d", got, slots)
	}
}

// A grace period waits for the sections that had begun, and for no later ones.
func TestSynchronizeWaits(t *testing.T) {
	d := NewDomain()
	early, late := d.Register("early"), d.Register("late")
	early.Enter()
	done := make(chan error)
	epoch := d.epoch.Load()
	go func() { done <- d.Synchronize(context.Background()) }()
	for d.epoch.Load() == epoch {
		time.Sleep(time.Millisecond)
	}
	late.Enter()
	select {
	case err := <-done:
		t.Fatalf("Synchronize beside a reader inside: got %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	early.Exit()
	if err := <-done; err != nil {
		t.Errorf("got %v, want nil", err)
	}
	late.Exit()
}

func TestSynchronizeEnds(t *testing.T) {
	d := NewDomain()
	r := d.Register("applier")
	inside, leave := make(chan struct{}), make(chan struct{})
	left := make(chan struct{})
	go func() {
		defer close(left)
		r.Enter()
		close(inside)
		<-leave
		r.Exit()
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	err := d.Synchronize(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `reader "applier"`) {
		t.Errorf("got %v, want the deadline and the reader", err)
	}
	close(leave)
	<-left
	if err := d.Synchronize(t.Context()); err != nil {
		t.Errorf("after the reader left: got %v, want nil", err)
	}
}

func TestSynchronizeInside(t *testing.T) {
	if !arch.Invariants && !ownersKnown() {
		t.Skip("pure Go without invariants does not know who is inside")
	}
	d, other := NewDomain(), NewDomain()
	r := d.Register("self")
	r.Enter()
	if err := d.Synchronize(t.Context()); !errors.Is(err, ErrSection) {
		t.Errorf("inside a section of the domain: got %v, want %v", err, ErrSection)
	}
	if err := other.Synchronize(t.Context()); err != nil {
		t.Errorf("inside a section of another domain: got %v, want nil", err)
	}
	w := NewWriter32(d, func([]uint32) {})
	if err := w.Defer(1, 0); err != nil {
		t.Errorf("Defer inside a section: got %v, want nil", err)
	}
	if err := w.Barrier(t.Context()); !errors.Is(err, ErrSection) {
		t.Errorf("Barrier inside a section: got %v, want %v", err, ErrSection)
	}
	r.Exit()
	if err := d.Synchronize(t.Context()); err != nil {
		t.Errorf("outside: got %v, want nil", err)
	}
}

// ownersKnown reports whether StoreOwned knows the goroutine in this build.
func ownersKnown() bool {
	var w [2]uint64
	arch.StoreOwned(&w, 1)
	return w[1] != 0
}

func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDomain()
		a, b := d.Register("a"), d.Register("b")
		begin := make(chan struct{})
		enter := func(r *Reader, stay time.Duration) {
			r.Enter()
			<-begin
			time.Sleep(stay)
			r.Exit()
		}
		go enter(a, 25*time.Second)
		synctest.Wait()
		go func() {
			if err := d.Synchronize(context.Background()); err != nil {
				t.Errorf("first grace period: %v", err)
			}
		}()
		close(begin)
		time.Sleep(5 * time.Second)
		go enter(b, 10*time.Second)
		synctest.Wait()
		go func() {
			if err := d.Synchronize(context.Background()); err != nil {
				t.Errorf("second grace period: %v", err)
			}
		}()
		time.Sleep(3 * time.Second)

		got := d.Stalls(time.Second)
		if len(got) != 2 || got[0].Label != "a" || got[1].Label != "b" {
			t.Fatalf("got %v, want a and b", got)
		}
		if got[0].Age < 7*time.Second || got[0].Age > 8*time.Second || got[1].Age > 3*time.Second {
			t.Errorf("got ages %v, want nearly 8 s and 3 s", got)
		}
		if got := d.Stalls(5 * time.Second); len(got) != 1 || got[0].Label != "a" {
			t.Errorf("at least 5 s: got %v, want a", got)
		}
		time.Sleep(10 * time.Second)
		if got := d.Stalls(0); len(got) != 1 || got[0].Label != "a" {
			t.Errorf("after b left: got %v, want a", got)
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
		"nested Enter":      {false, func(r *Reader) { r.Enter(); r.Enter() }},
		"Exit outside":      {false, func(r *Reader) { r.Exit() }},
		"Unregister inside": {true, func(r *Reader) { r.Enter(); r.Unregister() }},
		"use after":         {true, func(r *Reader) { r.Unregister(); r.Enter() }},
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

func TestSectionAllocs(t *testing.T) {
	if arch.Invariants && !arch.LightStores {
		t.Skip("invariants without assembly read the goroutine's number from a stack trace")
	}
	d := NewDomain()
	r := d.Register("x")
	if got := testing.AllocsPerRun(100, func() {
		r.Enter()
		r.Exit()
		if err := d.Synchronize(t.Context()); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestInlined(t *testing.T) { archtest.Inlined(t, "(*Reader).Enter", "(*Reader).Exit") }

func ExampleDomain() {
	d := NewDomain()
	r := d.Register("example")

	r.Enter()
	// Look something up and use it.
	r.Exit()

	// Unlink it, then wait until nobody can have it.
	fmt.Println(d.Synchronize(context.Background()))
	// Output: <nil>
}
