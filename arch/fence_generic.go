//go:build purego || race || (!amd64 && !arm64)

package arch

// Pause does nothing here: without assembly there is no spin-wait hint. Every
// loop around it needs a bound.
func Pause() {}

// StoreRelease64 stores v in *p with release ordering: loads and stores before
// it are seen before it. p must be aligned to 8 bytes.
func StoreRelease64(p *uint64, v uint64) { storeRelease64(p, v) }

// Cycles returns nanoseconds of a monotonic clock here, in place of the
// processor's counter. It orders nothing.
func Cycles() uint64 { return cycles() }
