package arch

import (
	"syscall"
	"testing"
)

func TestMembarrier(t *testing.T) {
	if !HasMembarrier() {
		if err := Membarrier(); err == nil {
			t.Error("Membarrier without HasMembarrier: got no error")
		}
		t.Skip("this build or kernel has no membarrier(2)")
	}
	for range 100 {
		if err := Membarrier(); err != nil {
			t.Fatalf("got %v, want nil", err)
		}
	}
	if got := testing.AllocsPerRun(100, func() { _ = Membarrier() }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestMembarrierWithoutStores(t *testing.T) {
	if !LightStores && HasMembarrier() {
		t.Error("a membarrier where no store needs it")
	}
	if err := Membarrier(); err != nil && HasMembarrier() || err == syscall.EINVAL {
		t.Errorf("got %v", err)
	}
}

func BenchmarkMembarrier(b *testing.B) {
	if !HasMembarrier() {
		b.Skip("this build or kernel has no membarrier(2)")
	}
	bench(b, 100, func(n int) {
		for range n {
			if err := Membarrier(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
