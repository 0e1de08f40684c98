//go:build invariants && !purego && !race

package pid

// checkOrder says whether locks remember who holds them.
const checkOrder = true
