// Package arch holds what depends on the processor: the size of a cache line,
// a spin-wait hint, release stores, the asymmetric fence of membarrier(2), the
// cycle counter, and the copies in and out of a record under a sequence lock.
// amd64 and arm64 use assembly; other processors, the race detector and the build
// tag purego use a twin on sync/atomic with the same results. Start at seq.go and
// membarrier.go.
package arch
