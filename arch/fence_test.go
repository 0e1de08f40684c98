package arch

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

func TestPad(t *testing.T) {
	var x struct {
		reader uint64
		_      Pad
		writer uint64
	}
	if got := unsafe.Offsetof(x.writer) - unsafe.Offsetof(x.reader); got < CacheLine {
		t.Errorf("distance over a Pad: got %d, want at least %d", got, CacheLine)
	}
}

func TestStoreRelease64(t *testing.T) {
	for name, store := range map[string]func(*uint64, uint64){"build": StoreRelease64, "portable": storeRelease64} {
		for _, v := range []uint64{0, 1, 1 << 31, 1 << 32, 1<<63 | 1, ^uint64(0)} {
			w := [3]uint64{11, 22, 33}
			store(&w[1], v)
			if want := [3]uint64{11, v, 33}; w != want {
				t.Errorf("%s: store %#x: got %#x, want %#x", name, v, w, want)
			}
		}
	}
}

func TestCycles(t *testing.T) {
	for name, read := range map[string]func() uint64{"build": Cycles, "portable": cycles} {
		a := read()
		time.Sleep(2 * time.Millisecond)
		b := read()
		if a == 0 || b <= a {
			t.Errorf("%s: got %d, then %d two milliseconds later", name, a, b)
		}
	}
}

func TestPauseReturns(t *testing.T) {
	for range 1000 {
		Pause()
	}
}

func TestFenceAllocs(t *testing.T) {
	var x uint64
	if got := testing.AllocsPerRun(100, func() {
		StoreRelease64(&x, Cycles())
		Pause()
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

// bench reports the time of one operation out of a batch that run does.
func bench(b *testing.B, batch int, run func(n int)) {
	for b.Loop() {
		run(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch), "ns/op")
}

func BenchmarkStoreRelease64(b *testing.B) {
	var x uint64
	bench(b, 1000, func(n int) {
		for i := range n {
			StoreRelease64(&x, uint64(i))
		}
	})
}

// What StoreRelease64 saves.
func BenchmarkAtomicStore(b *testing.B) {
	var x uint64
	bench(b, 1000, func(n int) {
		for i := range n {
			atomic.StoreUint64(&x, uint64(i))
		}
	})
}

func BenchmarkCycles(b *testing.B) {
	bench(b, 1000, func(n int) {
		for range n {
			Cycles()
		}
	})
}

func BenchmarkPause(b *testing.B) {
	bench(b, 1000, func(n int) {
		for range n {
			Pause()
		}
	})
}
