package epoch

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kpidd/kpidd/arch"
)

const batch = 1000

// perOp reports the time of one operation out of a batch.
func perOp(b *testing.B, batch int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch), "ns/op")
}

// The loops below do four operations a turn and carry no sum: around a call into
// assembly every variable is stored and loaded again, and a chain through memory
// would cost more than what is measured.

//go:noinline
func sections(r *Reader, p *atomic.Uint64) bool {
	for range batch / 4 {
		r.Enter()
		if p.Load() != 0 {
			return false
		}
		r.Exit()
		r.Enter()
		if p.Load() != 0 {
			return false
		}
		r.Exit()
		r.Enter()
		if p.Load() != 0 {
			return false
		}
		r.Exit()
		r.Enter()
		if p.Load() != 0 {
			return false
		}
		r.Exit()
	}
	return true
}

//go:noinline
func atomicSections(slot, epoch, p *atomic.Uint64) bool {
	for range batch / 4 {
		slot.Store(epoch.Load())
		if p.Load() != 0 {
			return false
		}
		slot.Store(0)
		slot.Store(epoch.Load())
		if p.Load() != 0 {
			return false
		}
		slot.Store(0)
		slot.Store(epoch.Load())
		if p.Load() != 0 {
			return false
		}
		slot.Store(0)
		slot.Store(epoch.Load())
		if p.Load() != 0 {
			return false
		}
		slot.Store(0)
	}
	return true
}

// stores is the floor of Enter and Exit where they are plain stores: two calls
// into assembly.
//
//go:noinline
func stores(p *[2]uint64) {
	for range batch / 4 {
		arch.StoreOwned(p, 1)
		arch.StoreRelease64(&p[0], 0)
		arch.StoreOwned(p, 1)
		arch.StoreRelease64(&p[0], 0)
		arch.StoreOwned(p, 1)
		arch.StoreRelease64(&p[0], 0)
		arch.StoreOwned(p, 1)
		arch.StoreRelease64(&p[0], 0)
	}
}

// A section with one load, beside what it is made of and atomic stores.
func BenchmarkSection(b *testing.B) {
	var p, slot, epoch atomic.Uint64
	b.Run("domain", func(b *testing.B) {
		r := NewDomain().Register("x")
		for b.Loop() {
			sections(r, &p)
		}
		perOp(b, batch)
	})
	b.Run("floor=stores", func(b *testing.B) {
		var w [2]uint64
		for b.Loop() {
			stores(&w)
		}
		perOp(b, batch)
	})
	b.Run("floor=atomic", func(b *testing.B) {
		for b.Loop() {
			atomicSections(&slot, &epoch, &p)
		}
		perOp(b, batch)
	})
}

// A grace period beside so many readers that are outside.
func BenchmarkSynchronize(b *testing.B) {
	for _, membarrier := range []bool{true, false} {
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("membarrier=%v/idle=%d", membarrier, n), func(b *testing.B) {
				d := NewDomain()
				d.membarrier = d.membarrier && membarrier // no reader will enter
				for range n {
					d.Register("idle")
				}
				ctx := context.Background()
				for b.Loop() {
					for range batch {
						if err := d.Synchronize(ctx); err != nil {
							b.Fatal(err)
						}
					}
				}
				perOp(b, batch)
			})
		}
	}
}

// A handle deferred and reclaimed, with 16 readers outside and with one that
// enters and leaves all the time.
func BenchmarkDefer(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("batch=%d/busy=%v", writer32Batch, busy), func(b *testing.B) {
			d := NewDomain()
			for range 15 {
				d.Register("idle")
			}
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				r := d.Register("busy")
				var p atomic.Uint64
				for busy && !stop.Load() {
					sections(r, &p)
				}
			}()
			reclaimed := 0
			w := NewWriter32(d, func(slots []uint32) { reclaimed += len(slots) })
			ctx := context.Background()
			for b.Loop() {
				for n := range uint32(1024) {
					if w.Defer(n, 64) != nil {
						if err := w.Barrier(ctx); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			perOp(b, 1024)
			stop.Store(true)
			<-done
		})
	}
}
