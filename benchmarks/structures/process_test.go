package structures

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// process is a contender in a process of its own: one written in C, or one whose
// heap must hold nothing else. It is told by a line how many operations to do and
// answers with a line: the time that a thread took for them in ns, and how many
// gave what they should, over all threads.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(env []string, path string, args ...string) *process {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		panic(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return &process{cmd, in, bufio.NewReader(out)}
}

// bench is the contender that p is.
func (p *process) bench() bench { return bench{process: p, close: p.close} }

// burst has the process do ops operations on each of its threads.
func (p *process) burst(ops int) (took time.Duration, good int, err error) {
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if _, err := fmt.Fprintln(p.in, ops); err != nil {
		return 0, 0, fmt.Errorf("ask %s: %w", p.cmd.Path, err)
	}
	var ns int64
	if _, err := fmt.Fscanln(p.out, &ns, &good); err != nil {
		return 0, 0, fmt.Errorf("answer of %s: %w", p.cmd.Path, err)
	}
	return time.Duration(ns), good, nil
}

// close ends the process, which ends at the end of its input.
func (p *process) close() {
	_ = p.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait()
}

// serve is the other side of a process, for a part of this binary: it does what
// it is told until its input ends.
func serve(loop func(ops int) (good int)) {
	in := bufio.NewReader(os.Stdin)
	for {
		var ops int
		if _, err := fmt.Fscanln(in, &ops); err != nil {
			return
		}
		begin := time.Now()
		good := loop(ops)
		fmt.Println(time.Since(begin).Nanoseconds(), good)
	}
}

const child = "KPIDD_BENCH_CHILD"

// TestMain runs the benchmarks, or in a child what it was started for.
func TestMain(m *testing.M) {
	if name := os.Getenv(child); name != "" {
		gcChild(name)
		return
	}
	status := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(status)
}

// programs are the C programs built so far. They are not needed: a machine
// without compiler or library goes without them.
var programs struct {
	mu    sync.Mutex
	dir   string
	built map[string]error // by the path of the program
}

// flavour is a C program and the way to build it.
type flavour struct {
	name, source string
	flags        []string
}

var (
	urcuQSBR = flavour{"liburcu-qsbr", "urcu.c", []string{"-DQSBR", "-lurcu-qsbr", "-lurcu-cds"}}
	urcuMemb = flavour{"liburcu-memb", "urcu.c", []string{"-DRCU_MEMBARRIER", "-lurcu-memb", "-lurcu-cds"}}
	urcuMB   = flavour{"liburcu-mb", "urcu.c", []string{"-DRCU_MB", "-lurcu-mb", "-lurcu-cds"}}
	ck       = flavour{"ck", "ck.c", []string{"-lck"}}
)

// contender is what the program does with these arguments.
func (f flavour) contender(name string, args ...string) contender {
	return contender{
		name:    f.name + "." + name,
		missing: func() error { _, err := f.build(); return err },
		setUp: func() bench {
			path, err := f.build()
			if err != nil {
				panic(err)
			}
			return start(nil, path, args...).bench()
		},
	}
}

// build returns the path of the program, built once.
func (f flavour) build() (path string, err error) {
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if programs.dir == "" {
		if programs.dir, err = os.MkdirTemp("", "structures"); err != nil {
			return "", fmt.Errorf("make folder for C programs: %w", err)
		}
		programs.built = map[string]error{}
	}
	path = filepath.Join(programs.dir, f.name)
	err, done := programs.built[path]
	if !done {
		err = f.compile(path)
		programs.built[path] = err
	}
	return path, err
}

func (f flavour) compile(path string) error {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return errors.New("no C compiler")
	}
	args := append([]string{"-O2", "-o", path, filepath.Join("testdata", f.source), "-pthread"}, f.flags...)
	out, err := exec.Command(cc, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	if bytes.Contains(out, []byte("No such file or directory")) || bytes.Contains(out, []byte("cannot find -l")) {
		return fmt.Errorf("%s is not installed", f.name)
	}
	return fmt.Errorf("cc %s: %w: %s", f.source, err, strings.ReplaceAll(string(out), "\n", " "))
}
