package archtest

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// StressTime is how long one stress test runs.
func StressTime() time.Duration {
	if testing.Short() {
		return 100 * time.Millisecond
	}
	return time.Second
}

// MustCatch runs a stress test against a busted variant, three times at most and
// 30 s in all, until caught returns true. A variant that is never caught fails t:
// the stress test proves nothing.
func MustCatch(t *testing.T, caught func(limit time.Duration) bool) {
	t.Helper()
	begin := time.Now()
	for try := range 3 {
		if caught(10 * time.Second) {
			t.Logf("caught in try %d after %v", try+1, time.Since(begin).Round(time.Millisecond))
			return
		}
	}
	t.Errorf("not caught in %v", time.Since(begin).Round(time.Millisecond))
}

var emulated = sync.OnceValue(func() bool {
	if runtime.GOARCH != "arm64" {
		return false
	}
	cpus, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && !bytes.Contains(cpus, []byte("CPU implementer"))
})

// SkipStoreBuffering skips a test in which a thread stores, loads, and must not
// miss another thread that does the same, when the arm64 build runs under
// emulation: qemu-user up to 7.2 lets LDAR run ahead of an STLR before it, which
// no arm64 processor does. Emulation is told by a /proc/cpuinfo that is not of
// arm64. Nothing else is skipped for it.
func SkipStoreBuffering(t *testing.T) {
	t.Helper()
	if emulated() {
		t.Skip("emulated arm64: STLR and LDAR are reordered by qemu-user 7.2")
	}
}
