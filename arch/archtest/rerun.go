package archtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

const noMembarrier = "KPIDD_TEST_NO_MEMBARRIER"

// Main runs the tests, without membarrier(2) in a process that WithoutMembarrier
// has started.
func Main(m *testing.M, disableMembarrier func()) {
	if os.Getenv(noMembarrier) != "" {
		disableMembarrier()
	}
	os.Exit(m.Run())
}

// WithoutMembarrier runs one test of this binary in a process without
// membarrier(2).
func WithoutMembarrier(t *testing.T, name string) {
	t.Helper()
	if os.Getenv(noMembarrier) != "" {
		t.Skip("this is the process without membarrier(2)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	short := "-test.short=false"
	if testing.Short() {
		short = "-test.short"
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+name+"$", "-test.v", short)
	cmd.Env = append(os.Environ(), noMembarrier+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
