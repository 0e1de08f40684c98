//go:build purego || race || !amd64 || !linux

package arch

import "syscall"

// LightStores says whether a load may run ahead of a StoreRelease64 before it, and
// of a StoreOwned if HasMembarrier.
const LightStores = false

// HasMembarrier is false here: no store needs it.
func HasMembarrier() bool { return false }

// Membarrier fails here.
func Membarrier() error { return syscall.ENOSYS }
