package archtest

import (
	"math/bits"
	"runtime"
	"syscall"
	"unsafe"
)

// Pin gives the calling goroutine a thread of its own on the n-th of the
// processors that it may run on, so that threads which must meet run at once. The
// thread ends with the goroutine. Where the kernel refuses, nothing is pinned.
func Pin(n int) {
	runtime.LockOSThread()
	var mask [16]uint64
	size := unsafe.Sizeof(mask)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, size, uintptr(unsafe.Pointer(&mask))); errno != 0 {
		return
	}
	cpus := 0
	for _, w := range mask {
		cpus += bits.OnesCount64(w)
	}
	if cpus == 0 {
		return
	}
	n %= cpus
	var one [16]uint64
	for i, w := range mask {
		for ; w != 0 && n >= 0; w &= w - 1 {
			if n == 0 {
				one[i] = w & -w
			}
			n--
		}
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, size, uintptr(unsafe.Pointer(&one)))
}
