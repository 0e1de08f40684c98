package main

import (
	"slices"
	"strings"
	"testing"
)

// A busted variant is the real code with one line left out, changed or moved;
// otherwise a stress test that catches it would prove nothing about that line.
func TestBustedIsOneLine(t *testing.T) {
	const domain = "epoch Domain slots=16 spins=64 yields=64\n"
	for _, c := range []struct{ above, block, name, busted string }{
		{"", "seqcount %s spins=64 yields=256", "Count", "retry"},
		{"", "epoch %s slots=16 spins=64 yields=64", "Domain", "barrier"},
		{"", "epoch %s slots=16 spins=64 yields=64", "Domain", "scan"},
		{domain, "retire %s domain=Domain handle=uint32 batch=1024 items=16384 bytes=16777216", "Writer", "tag"},
		{"", "srcu %s slots=16 spins=64 yields=64 delay=yes", "Domain", "flip"},
		{"", "queue %s batch=64 items=4096 delay=yes", "Queue", "publish"},
	} {
		text := "package p\n" + c.above + strings.Replace(c.block, "%s", c.name, 1) + " for=test"
		real, busted := emitLines(t, text), emitLines(t, text+" busted="+c.busted)
		missing, added := without(real, busted), without(busted, real)
		line, moved := movedLine(real, busted)
		switch {
		case moved:
			t.Logf("busted=%s: moved %q", c.busted, line)
		case len(missing) > 1 || len(added) > 1 || len(missing)+len(added) == 0:
			t.Errorf("busted=%s: left out %q, put in %q, want one line", c.busted, missing, added)
		default:
			t.Logf("busted=%s: left out %q, put in %q", c.busted, missing, added)
		}
	}
}

// emitLines returns the lines of the last file that text gives.
func emitLines(t *testing.T, text string) []string {
	t.Helper()
	files, err := emitText(text)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(files[len(files)-1].code)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// without returns the lines of a that are not in b, each as often as it is missing.
func without(a, b []string) []string {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	var missing []string
	for _, line := range a {
		if count[line]--; count[line] < 0 {
			missing = append(missing, line)
		}
	}
	return missing
}

// movedLine returns the line without which a and b, which differ, are the same.
func movedLine(a, b []string) (line string, ok bool) {
	if slices.Equal(a, b) || len(a) != len(b) {
		return "", false
	}
	for _, line := range a {
		isLine := func(other string) bool { return other == line }
		if slices.Equal(slices.DeleteFunc(slices.Clone(a), isLine), slices.DeleteFunc(slices.Clone(b), isLine)) {
			return line, true
		}
	}
	return "", false
}
