package srcu

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

const batch = 1000

// perOp reports the time of one operation out of a batch.
func perOp(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/op")
}

// sections does four a turn and carries no sum: around a call into assembly every
// variable is stored and loaded again, and a chain through memory would cost more
// than what is measured.
//
//go:noinline
func sections(r *Reader, p *atomic.Uint64) bool {
	for range batch / 4 {
		i := r.ReadLock()
		if p.Load() != 0 {
			return false
		}
		r.ReadUnlock(i)
		i = r.ReadLock()
		if p.Load() != 0 {
			return false
		}
		r.ReadUnlock(i)
		i = r.ReadLock()
		if p.Load() != 0 {
			return false
		}
		r.ReadUnlock(i)
		i = r.ReadLock()
		if p.Load() != 0 {
			return false
		}
		r.ReadUnlock(i)
	}
	return true
}

//go:noinline
func atomicSections(begun, ended, p *atomic.Uint64) bool {
	for range batch / 4 {
		begun.Add(1)
		if p.Load() != 0 {
			return false
		}
		ended.Add(1)
		begun.Add(1)
		if p.Load() != 0 {
			return false
		}
		ended.Add(1)
		begun.Add(1)
		if p.Load() != 0 {
			return false
		}
		ended.Add(1)
		begun.Add(1)
		if p.Load() != 0 {
			return false
		}
		ended.Add(1)
	}
	return true
}

// A section with one load, beside two atomic additions.
func BenchmarkSection(b *testing.B) {
	var p, begun, ended atomic.Uint64
	b.Run("domain", func(b *testing.B) {
		r := NewDomain().Register("x")
		for b.Loop() {
			sections(r, &p)
		}
		perOp(b)
	})
	b.Run("floor=atomic", func(b *testing.B) {
		for b.Loop() {
			atomicSections(&begun, &ended, &p)
		}
		perOp(b)
	})
}

// A grace period beside so many readers that are outside.
func BenchmarkSynchronize(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("idle=%d", n), func(b *testing.B) {
			d := NewDomain()
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
			perOp(b)
		})
	}
}
