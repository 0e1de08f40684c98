package arch

import (
	"testing"
	"unsafe"
)

func TestAligned(t *testing.T) {
	type slot struct{ w [CacheLine / 8]uint64 }
	for n := 1; n < 40; n++ {
		slots := Aligned[slot](n)
		if len(slots) != n {
			t.Errorf("got %d slots, want %d", len(slots), n)
		}
		if at := uintptr(unsafe.Pointer(&slots[0])); at%CacheLine != 0 {
			t.Errorf("%d slots at %#x: not aligned to %d", n, at, CacheLine)
		}
		for i := range slots {
			for j, w := range slots[i].w {
				if w != 0 {
					t.Errorf("slot %d word %d: got %#x, want 0", i, j, w)
				}
				slots[i].w[j] = ^uint64(0)
			}
		}
	}
}

func TestAlignedRefusesSize(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a type of 8 bytes: got no panic")
		}
	}()
	Aligned[uint64](1)
}
