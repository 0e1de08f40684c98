package lab

import (
	"math/bits"
	"sync/atomic"
)

// Histogram counts times by size: four buckets for each power of two, so that a
// quantile is at most a quarter too large. The zero value is empty; it is not
// copied. Any goroutine may call any method; a reading beside writers may miss the
// newest.
type Histogram struct {
	counts [histogramBuckets]atomic.Uint64
}

const histogramBuckets = 4 * 64

// Add counts one time of ns nanoseconds.
func (h *Histogram) Add(ns uint64) { h.counts[bucketOf(ns)].Add(1) }

// N is how many times were counted.
func (h *Histogram) N() (n uint64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Quantile is a time, in nanoseconds, that a share q of those counted, 0 to 1, does
// not exceed; 0 if none was counted.
func (h *Histogram) Quantile(q float64) uint64 {
	left := uint64(q * float64(h.N()))
	for i := range h.counts {
		n := h.counts[i].Load()
		if n > left {
			return bucketEnd(i)
		}
		left -= n
		if left == 0 && n > 0 {
			return bucketEnd(i)
		}
	}
	return 0
}

// bucketOf: times below 4 have buckets of their own; above, the two bits behind the
// highest tell the quarter.
func bucketOf(ns uint64) int {
	if ns < 4 {
		return int(ns)
	}
	shift := bits.Len64(ns) - 3
	return 4*(shift+1) + int(ns>>shift&3)
}

// bucketEnd is the largest time of a bucket.
func bucketEnd(i int) uint64 {
	if i < 4 {
		return uint64(i)
	}
	shift := i/4 - 1
	return (4+uint64(i%4)+1)<<shift - 1
}
