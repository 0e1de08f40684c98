//go:build !purego && !race && (amd64 || arm64)

package arch

// Pause tells the processor that the caller spins: PAUSE on amd64, YIELD on
// arm64. It orders nothing. Every loop around it needs a bound.
func Pause()

// StoreRelease64 stores v in *p with release ordering: loads and stores before
// it are seen before it. A later load may run ahead of it, which is what
// atomic.StoreUint64 forbids and pays for. p must be aligned to 8 bytes.
//
//go:noescape
func StoreRelease64(p *uint64, v uint64)

// Cycles returns the processor's time-stamp counter (TSC, CNTVCT_EL0): ticks
// of a constant rate that the machine fixes. It orders nothing, and the
// processor may read it somewhat earlier or later than the code says.
func Cycles() uint64
