package archtest

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Inlined checks that the compiler can inline the functions of the package in the
// current folder, which are named as it names them: (*T).Method.
func Inlined(t *testing.T, names ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: builds the package anew")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Skipf("go build: %v", err)
	}
	for _, name := range names {
		if !strings.Contains(string(out), "can inline "+name+"\n") {
			t.Errorf("%s is not inlined any more", name)
		}
	}
}
