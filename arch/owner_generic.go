//go:build purego || race || (!amd64 && !arm64)

package arch

// Goroutine returns a number that tells the calling goroutine from all others
// that live now. It is slow here.
func Goroutine() uint64 { return goroutine() }

// StoreOwned stores Goroutine() in p[1], if Invariants, and then v in p[0], each
// with the ordering of sync/atomic. p must be aligned to 8 bytes.
func StoreOwned(p *[2]uint64, v uint64) {
	if Invariants {
		storeRelease64(&p[1], goroutine())
	}
	storeRelease64(&p[0], v)
}

// IncrementOwned is StoreOwned of p[0]+1. It is not atomic: nobody else stores
// into p.
func IncrementOwned(p *[2]uint64) { StoreOwned(p, p[0]+1) }
