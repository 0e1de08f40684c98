//go:build !invariants && !race

package arch

// Invariants says whether types check what their callers promise, at a cost:
// true under the build tag invariants and the race detector.
const Invariants = false
