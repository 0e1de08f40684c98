package arch

import "sync/atomic"

// The portable halves of seq_generic.go, for any number of words. They are
// always built, so that one test compares them with the assembly. Every access
// to the record is atomic, so the race detector has nothing to report.

func seqRead(dst, rec []uint64) bool {
	seq := atomic.LoadUint64(&rec[0]) // D
	if seq&1 != 0 {
		return false
	}
	for i := range dst {
		dst[i] = atomic.LoadUint64(&rec[i+1])
	}
	return atomic.LoadUint64(&rec[0]) == seq // B
}

func seqWrite(rec, src []uint64) {
	odd := atomic.LoadUint64(&rec[0]) | 1
	atomic.StoreUint64(&rec[0], odd) // A
	for i, w := range src {
		atomic.StoreUint64(&rec[i+1], w)
	}
	atomic.StoreUint64(&rec[0], odd+1) // C
}
