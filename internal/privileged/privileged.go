// Package privileged guards tests that change the machine: they run only when
// they are asked for, alone, and under "must" nothing is skipped in silence.
package privileged

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Switch is the environment variable that lets these tests run: "1" where they
// can, "must" as CI sets it.
const Switch = "KPIDD_TEST_PRIVILEGED"

func must() bool { return os.Getenv(Switch) == "must" }

// Hold skips t unless the switch is set and the user is root, and else keeps
// every other such test on the machine out until t has ended.
func Hold(t testing.TB) {
	t.Helper()
	if v := os.Getenv(Switch); v != "1" && v != "must" {
		t.Skipf("changes the machine: set %s=1 to run it", Switch)
	}
	if os.Geteuid() != 0 {
		if must() {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	lock, err := os.OpenFile("/run/kpidd-privileged.lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// Missing skips t because the machine lacks a feature. Under "must" the feature
// has to be listed in .ci/unsupported, or t fails.
func Missing(t testing.TB, feature string) {
	t.Helper()
	if must() && !unsupported(t, feature) {
		t.Fatalf("needs %s, and .ci/unsupported does not list it", feature)
	}
	t.Skipf("needs %s", feature)
}

// unsupported tells whether .ci/unsupported lists the feature: one a line, its
// name first, then why the machine of CI lacks it.
func unsupported(t testing.TB, feature string) bool {
	t.Helper()
	dir, err := os.Getwd() // a test runs in its package's folder
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, ".ci", "unsupported"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 0 && words[0] == feature {
				return true
			}
		}
		return false
	}
	t.Fatal("no .ci/unsupported above the test's folder")
	return false
}
