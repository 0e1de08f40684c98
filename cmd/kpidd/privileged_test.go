package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kpidd/kpidd/internal/privileged"
)

// longVar asks for the long form of tests that have one: KPIDD_LONG=1.
const longVar = "KPIDD_LONG"

func long() bool { return os.Getenv(longVar) == "1" }

// needs returns the path of a command that the test cannot do without.
func needs(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		privileged.Missing(t, name)
	}
	return path
}

// setFile writes a value to a file of the kernel and puts the old one back at the
// end. It skips if the kernel has no such file.
func setFile(t *testing.T, path, value string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		privileged.Missing(t, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, old, 0); err != nil {
			t.Errorf("restore: %v", err)
		}
	})
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// raise is setFile, unless the value there is as large already.
func raise(t *testing.T, path string, value int) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(old))); err == nil && n >= value {
			return
		}
	}
	setFile(t, path, strconv.Itoa(value))
}

// builtStorm is testdata/storm.c, compiled once.
var builtStorm = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(workDir, "storm")
	out, err := exec.Command("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-o", path, filepath.Join("testdata", "storm.c")).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w:\n%s", err, out)
	}
	return path, err
})

func stormPath(t *testing.T) string {
	t.Helper()
	needs(t, "cc")
	path, err := builtStorm()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// process is a running command of a test.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader

	once sync.Once
	err  error // of Wait
}

// start runs a command until the test ends, at the latest.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, out: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// counts waits until the command has ended well and returns the NAME=COUNT words
// that it printed.
func (p *process) counts() map[string]int {
	p.t.Helper()
	counts := map[string]int{}
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			break
		}
		for word := range strings.FieldsSeq(line) {
			if name, value, ok := strings.Cut(word, "="); ok {
				counts[name], _ = strconv.Atoi(value)
			}
		}
	}
	if err := p.wait(); err != nil {
		p.t.Fatalf("%s: %v", strings.Join(p.cmd.Args, " "), err)
	}
	return counts
}

func (p *process) wait() error {
	p.once.Do(func() { p.err = p.cmd.Wait() })
	return p.err
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.wait()
}

// ready waits for the line "ready" and returns the one before it, if any.
func (p *process) ready() (before string) {
	p.t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%s ended without being ready: %v", strings.Join(p.cmd.Args, " "), err)
		}
		if line == "ready\n" {
			return before
		}
		before = strings.TrimSuffix(line, "\n")
	}
}

// storm starts a mode of storm.c.
func storm(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, stormPath(t), args...)
}

// sleeping starts a mode of storm.c that sleeps, and waits until it does.
func sleeping(t *testing.T, args ...string) *process {
	t.Helper()
	p := storm(t, args...)
	p.ready()
	return p
}

// keepLastPID has the kernel's numbers go on at the end from where they are.
func keepLastPID(t *testing.T) {
	t.Helper()
	const path = "/proc/sys/kernel/ns_last_pid"
	last, err := os.ReadFile(path)
	if err != nil {
		privileged.Missing(t, path)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, last, 0); err != nil {
			t.Errorf("restore: %v", err)
		}
	})
}
