package arch

import "unsafe"

// Aligned returns n zero values of T that begin at a multiple of CacheLine. The
// allocator promises no such alignment. T holds no pointers, and its size is a
// multiple of CacheLine; a T of another size is a panic.
func Aligned[T any](n int) []T {
	var zero T
	size := unsafe.Sizeof(zero)
	if size == 0 || size%CacheLine != 0 {
		panic("arch: Aligned: the size of T is no multiple of a cache line")
	}
	raw := make([]byte, uintptr(n)*size+CacheLine)
	base := unsafe.Pointer(unsafe.SliceData(raw))
	skip := -uintptr(base) % CacheLine
	return unsafe.Slice((*T)(unsafe.Add(base, skip)), n)
}
