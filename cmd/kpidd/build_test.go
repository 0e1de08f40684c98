package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

// builtBinary is kpidd as it is released, built once.
var builtBinary = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(workDir, "kpidd")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

func TestBinaryIsStatic(t *testing.T) {
	path, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("got a segment %v, want none", p.Type)
		}
	}
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("got libraries %q, %v, want none", libs, err)
	}
}

// initClock is the time that one package took, in a line of GODEBUG=inittrace=1.
var initClock = regexp.MustCompile(`^init (\S+) @\S+ ms, (\S+) ms clock,`)

// TestPackageInit holds down what every command pays before main. Anything else
// on the machine only adds to it, so the least of 20 runs counts, for each package;
// where that is not enough, because the machine is busy, of up to 100.
func TestPackageInit(t *testing.T) {
	const most = time.Millisecond
	path, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	least := map[string]time.Duration{}
	sum := time.Hour
	for run := 0; run < 20 || run < 100 && sum > most; run++ {
		cmd := exec.Command(path, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		noteInit(t, least, stderr.Bytes())
		sum = 0
		for _, took := range least {
			sum += took
		}
	}
	t.Logf("initialisation of %d packages: %v", len(least), sum)
	if sum > most || len(least) == 0 {
		t.Errorf("got %v for %d packages, want at most %v: %v", sum, len(least), most, least)
	}
}

// noteInit keeps the least time of each package in a trace.
func noteInit(t *testing.T, least map[string]time.Duration, trace []byte) {
	t.Helper()
	for lines := bufio.NewScanner(bytes.NewReader(trace)); lines.Scan(); {
		m := initClock.FindSubmatch(lines.Bytes())
		if m == nil {
			continue
		}
		ms, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		name, took := string(m[1]), time.Duration(ms*float64(time.Millisecond))
		if old, ok := least[name]; !ok || took < old {
			least[name] = took
		}
	}
}
