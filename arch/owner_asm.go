//go:build !purego && !race && (amd64 || arm64)

package arch

// Goroutine returns a number that tells the calling goroutine from all others
// that live now. Later goroutines may get the same number.
func Goroutine() uint64

// StoreOwned stores Goroutine() in p[1] and then v in p[0], each with release
// ordering, so that whoever sees v sees who stored it. Whether later loads may run
// ahead of it is told in membarrier.go. p must be aligned to 8 bytes.
//
//go:noescape
func StoreOwned(p *[2]uint64, v uint64)

// IncrementOwned is StoreOwned of p[0]+1. It is not atomic: nobody else stores
// into p.
//
//go:noescape
func IncrementOwned(p *[2]uint64)
