package arch

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/kpidd/kpidd/arch/archtest"
)

// One thread stores data and then a flag, both by release stores. A thread that
// sees the flag must see the data.
func TestLitmusMessagePassing(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds = 10_000
	}
	var data, flag uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(rounds) {
			StoreRelease64(&data, n+1)
			StoreRelease64(&flag, n+1)
		}
	}()
	seen := uint64(0)
	for seen < uint64(rounds) {
		f := load(&flag)
		d := load(&data)
		if d < f {
			t.Fatalf("flag %d seen before its data, got %d", f, d)
		}
		if f < seen {
			t.Fatalf("flag went back from %d to %d", seen, f)
		}
		seen = f
	}
	<-done
}

// side is one thread's half of store buffering: it stores into its own word and
// returns what it loads from the other's.
type side func(mine, other *uint64) uint64

// storeBuffering runs both sides at once, again and again until the limit, or
// until both missed the other's store: what an order of all four accesses forbids.
func storeBuffering(limit time.Duration, often, seldom side) (missed bool, rounds uint64) {
	var cells struct {
		x     [2]uint64
		_     Pad
		y     [2]uint64
		_     Pad
		round [2]atomic.Uint64
		_     Pad
		seen  [2]uint64
		_     Pad
	}
	// meet returns when both threads are in round n, or false when the other is
	// gone or does not come.
	meet := func(self int, n uint64) bool {
		cells.round[self].Store(n)
		for spin := range 100_000_000 {
			if other := cells.round[1-self].Load(); other >= n {
				return other != ^uint64(0)
			}
			if spin > 1000 {
				runtime.Gosched()
			}
		}
		return false
	}
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		archtest.Pin(1)
		for n := uint64(1); meet(1, 2*n-1); n++ {
			cells.seen[1] = often(&cells.y[0], &cells.x[0])
			if !meet(1, 2*n) {
				return
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		defer cells.round[0].Store(^uint64(0))
		archtest.Pin(0)
		end := time.Now().Add(limit)
		for n := uint64(1); !missed && (n%256 != 0 || time.Now().Before(end)); n++ {
			atomic.StoreUint64(&cells.x[0], 0)
			atomic.StoreUint64(&cells.y[0], 0)
			if !meet(0, 2*n-1) {
				return
			}
			cells.seen[0] = seldom(&cells.x[0], &cells.y[0])
			if !meet(0, 2*n) {
				return
			}
			missed = cells.seen[0] == 0 && cells.seen[1] == 0
			rounds++
		}
	}()
	<-done
	<-done
	return missed, rounds
}

func atomicSide(mine, other *uint64) uint64 {
	atomic.StoreUint64(mine, 1)
	return load(other)
}

func releaseSide(mine, other *uint64) uint64 {
	StoreRelease64(mine, 1)
	return load(other)
}

func ownedSide(mine, other *uint64) uint64 {
	StoreOwned((*[2]uint64)(unsafe.Pointer(mine)), 1) // the cell is two words
	return load(other)
}

func membarrierSide(mine, other *uint64) uint64 {
	atomic.StoreUint64(mine, 1)
	if HasMembarrier() {
		if err := Membarrier(); err != nil {
			panic(err)
		}
	}
	return load(other)
}

// Of two threads that store and then load each other's word, one sees the other.
func TestLitmusStoreBuffering(t *testing.T) {
	archtest.SkipStoreBuffering(t)
	limit := archtest.StressTime()
	for name, sides := range map[string][2]side{
		"atomic":                {atomicSide, atomicSide},
		"release or membarrier": {releaseSide, membarrierSide},
		"owned or membarrier":   {ownedSide, membarrierSide},
	} {
		missed, rounds := storeBuffering(limit, sides[0], sides[1])
		t.Logf("%s: %d rounds", name, rounds)
		if missed || rounds == 0 {
			t.Errorf("%s: in round %d both threads missed the other's store", name, rounds)
		}
	}
}

// The same without the membarrier must be caught by the same check.
func TestLitmusStoreBufferingCatchesBusted(t *testing.T) {
	if !LightStores || runtime.GOMAXPROCS(0) < 2 || runtime.NumCPU() < 2 {
		t.Skip("stores are not light here, or there is one processor only")
	}
	archtest.MustCatch(t, func(limit time.Duration) bool {
		missed, rounds := storeBuffering(limit, releaseSide, releaseSide)
		t.Logf("%d rounds", rounds)
		return missed
	})
}

// Two writers, two readers: the readers agree on which store came first.
func TestLitmusIRIW(t *testing.T) {
	archtest.SkipStoreBuffering(t)
	const cells = 4096
	var x, y [cells]struct {
		w uint64
		_ [56]byte
	}
	rounds := 0
	for end := time.Now().Add(archtest.StressTime()); time.Now().Before(end); rounds++ {
		var first [2][cells]uint64
		var start, done atomic.Int32
		each := func(run func(i int)) {
			start.Add(1)
			for start.Load() < 4 {
				runtime.Gosched()
			}
			for i := range cells {
				run(i)
			}
			done.Add(1)
		}
		for i := range cells {
			atomic.StoreUint64(&x[i].w, 0)
			atomic.StoreUint64(&y[i].w, 0)
		}
		go each(func(i int) { atomic.StoreUint64(&x[i].w, 1) })
		go each(func(i int) { atomic.StoreUint64(&y[i].w, 1) })
		go each(func(i int) { first[0][i] = load(&x[i].w)<<1 | load(&y[i].w) })
		each(func(i int) { first[1][i] = load(&y[i].w)<<1 | load(&x[i].w) })
		for done.Load() < 4 {
			runtime.Gosched()
		}
		for i := range cells {
			if first[0][i] == 0b10 && first[1][i] == 0b10 {
				t.Fatalf("cell %d: one reader saw x alone, the other y alone", i)
			}
		}
	}
	t.Logf("%d rounds of %d cells", rounds, cells)
}
