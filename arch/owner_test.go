package arch

import (
	"sync"
	"testing"
)

// Every goroutine that lives at the same time has a number of its own, which
// stays.
func TestGoroutine(t *testing.T) {
	for name, self := range map[string]func() uint64{"build": Goroutine, "portable": goroutine} {
		const n = 50
		numbers := map[uint64]bool{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		all := make(chan struct{})
		for range n {
			wg.Go(func() {
				first := self()
				mu.Lock()
				numbers[first] = true
				if len(numbers) == n {
					close(all)
				}
				mu.Unlock()
				<-all
				if again := self(); again != first || again == 0 {
					t.Errorf("%s: got %#x, then %#x", name, first, again)
				}
			})
		}
		wg.Wait()
	}
}

func TestStoreOwned(t *testing.T) {
	for _, v := range []uint64{0, 1, 1 << 32, ^uint64(0)} {
		w := [4]uint64{11, 22, 33, 44}
		StoreOwned((*[2]uint64)(w[1:]), v)
		if w[0] != 11 || w[1] != v || w[3] != 44 {
			t.Errorf("store %#x: got %#x", v, w)
		}
		if want := Goroutine(); w[2] != want && (LightStores || Invariants) {
			t.Errorf("owner: got %#x, want %#x", w[2], want)
		}
		w[2] = 33
		IncrementOwned((*[2]uint64)(w[1:]))
		if w[0] != 11 || w[1] != v+1 || w[3] != 44 {
			t.Errorf("increment %#x: got %#x", v, w)
		}
		if want := Goroutine(); w[2] != want && (LightStores || Invariants) {
			t.Errorf("owner: got %#x, want %#x", w[2], want)
		}
	}
}

func TestOwnerAllocs(t *testing.T) {
	if Invariants {
		t.Skip("invariants: without assembly a goroutine's number is read from a stack trace")
	}
	var w [2]uint64
	if got := testing.AllocsPerRun(100, func() { StoreOwned(&w, 1) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func BenchmarkStoreOwned(b *testing.B) {
	HasMembarrier() // stores are fences before
	var w [2]uint64
	bench(b, 1000, func(n int) {
		for i := range n {
			StoreOwned(&w, uint64(i))
		}
	})
}
