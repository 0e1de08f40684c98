//go:build !purego && !race

package arch

// fenceStores makes StoreOwned and IncrementOwned fences. HasMembarrier clears it
// before it first returns true; then it is immutable.
var fenceStores = true
