package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/serve"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// readyMax is how long a daemon may take to its ready line on a busy machine.
const readyMax = 30 * time.Second

// daemonSpec is how a test wants its daemon. The zero value is a kpidd run in a
// directory of its own with whichever source opens.
type daemonSpec struct {
	dir        string   // runtime directory; one is made if it is empty
	args       []string // after kpidd run
	env        []string
	wrap       []string // command before kpidd, which must exec it
	cloneflags uintptr  // namespaces to be made for it
}

// testDaemon is a kpidd run in a process of its own.
type testDaemon struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	exited chan struct{} // closed after the process was waited for

	mu    sync.Mutex
	lines []string // of its standard error
	more  chan struct{}
}

// command is kpidd with these arguments, not yet started, as this test binary.
func command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), mainVar+"="+asMain)
	return cmd
}

// launch starts a daemon and does not wait for it.
func launch(t *testing.T, spec daemonSpec) *testDaemon {
	t.Helper()
	if spec.dir == "" {
		spec.dir = shortDir(t)
	}
	args := append([]string{"run", "--runtime-dir", spec.dir}, spec.args...)
	cmd := command(args...)
	if len(spec.wrap) > 0 {
		path, err := exec.LookPath(spec.wrap[0])
		if err != nil {
			t.Fatal(err)
		}
		cmd.Args = append(append([]string{}, spec.wrap...), append([]string{cmd.Path}, args...)...)
		cmd.Path = path
	}
	cmd.Env = append(cmd.Env, spec.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: spec.cloneflags}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	d := &testDaemon{t: t, dir: spec.dir, cmd: cmd, exited: make(chan struct{}), more: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			d.append(s.Text())
		}
		cmd.Wait() // what it tells is in ProcessState
		close(d.exited)
	}()
	t.Cleanup(d.end)
	return d
}

// startDaemon starts a daemon and waits until its table is published.
func startDaemon(t *testing.T, spec daemonSpec) *testDaemon {
	t.Helper()
	d := launch(t, spec)
	d.waitLine("ready in ")
	return d
}

// shortDir makes a directory for a daemon. Unlike that of t.TempDir its path is
// short enough for a socket, and everybody may search it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kpidd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "run")
}

func (d *testDaemon) append(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
	close(d.more)
	d.more = make(chan struct{})
}

// stderr is what the daemon has said so far.
func (d *testDaemon) stderr() (lines []string, more <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines[:len(d.lines):len(d.lines)], d.more
}

// waitLine waits for a line that contains text.
func (d *testDaemon) waitLine(text string) string {
	d.t.Helper()
	for timeout := time.After(readyMax); ; {
		lines, more := d.stderr()
		for _, line := range lines {
			if strings.Contains(line, text) {
				return line
			}
		}
		select {
		case <-more:
		case <-d.exited:
			d.t.Fatalf("the daemon ended (%v) without %q:\n%s", d.cmd.ProcessState, text, strings.Join(lines, "\n"))
		case <-timeout:
			d.t.Fatalf("no line %q after %v:\n%s", text, readyMax, strings.Join(lines, "\n"))
		}
	}
}

func (d *testDaemon) signal(sig syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatalf("signal %v: %v", sig, err)
	}
}

// stop ends the daemon as an administrator does. It must be gone within two
// seconds, with code 0, and leave nothing but its lock.
func (d *testDaemon) stop() {
	d.t.Helper()
	file := d.tableFile()
	begin := time.Now()
	d.signal(unix.SIGTERM)
	select {
	case <-d.exited:
	case <-time.After(readyMax):
		d.t.Fatalf("the daemon runs %v after SIGTERM", readyMax)
	}
	if took := time.Since(begin); took > 2*time.Second {
		d.t.Errorf("stop took %v, want at most 2 s", took)
	}
	lines, _ := d.stderr()
	if code := d.cmd.ProcessState.ExitCode(); code != exitDone {
		d.t.Errorf("got %v, want exit code 0:\n%s", d.cmd.ProcessState, strings.Join(lines, "\n"))
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			d.t.Errorf("%s was left behind", filepath.Join(d.dir, e.Name()))
		}
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		d.t.Errorf("the table %s was left behind", file)
	}
}

// tableFile is the file of the table, which may be elsewhere than its name.
func (d *testDaemon) tableFile() string {
	name := filepath.Join(d.dir, table.TableName)
	if target, err := os.Readlink(name); err == nil {
		return target
	}
	return name
}

// end is the clean-up: it kills what still runs and removes its table.
func (d *testDaemon) end() {
	if d.t.Failed() {
		lines, _ := d.stderr()
		d.t.Logf("daemon %d said:\n%s", d.cmd.Process.Pid, strings.Join(lines, "\n"))
	}
	select {
	case <-d.exited:
		return
	default:
	}
	file := d.tableFile()
	d.cmd.Process.Kill()
	<-d.exited
	os.Remove(file)
}

// kpidd runs a command in this process.
func kpidd(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return out.String(), errs.String(), code
}

// in runs a command on the daemon's directory.
func (d *testDaemon) in(args ...string) (stdout, stderr string, code int) {
	return kpidd(append(args, "--runtime-dir", d.dir)...)
}

func (d *testDaemon) status() (r statusReport) {
	d.t.Helper()
	out, errs, code := d.in("status")
	if code != exitDone {
		d.t.Fatalf("status: exit code %d: %s", code, errs)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		d.t.Fatalf("status %q: %v", out, err)
	}
	return r
}

// psRow is an object of kpidd ps --json.
type psRow struct {
	PID, TID, PPID uint32
	State          *string
	Threads        *uint32
	StartTicks     uint64 `json:"start_ticks"`
	Gen            *uint32
	Comm           string
	KThread        bool
}

// ps lists from the table; one that is gone or stale fails the test.
func (d *testDaemon) ps(args ...string) (rows []psRow) {
	d.t.Helper()
	out, errs, code := d.in(append([]string{"ps", "--json"}, args...)...)
	if errs != "" || code != exitDone && (code != exitNone || out != "") {
		d.t.Fatalf("ps %q: exit code %d: %s", args, code, errs)
	}
	for line := range strings.Lines(out) {
		var r psRow
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			d.t.Fatalf("ps %q: line %q: %v", args, line, err)
		}
		rows = append(rows, r)
	}
	return rows
}

// process is the row of one process; ok is false if there is none.
func (d *testDaemon) process(pid int) (row psRow, ok bool) {
	d.t.Helper()
	rows := d.ps("-p", fmt.Sprint(pid))
	if len(rows) > 1 {
		d.t.Fatalf("ps -p %d: got %d rows, want at most 1", pid, len(rows))
	}
	if len(rows) == 0 {
		return row, false
	}
	return rows[0], true
}

// auditCounts is what kpidd audit --json prints.
type auditCounts struct{ Checked, Missing, Ghosts, Mismatched int }

func (a auditCounts) differences() int { return a.Missing + a.Ghosts + a.Mismatched }

// audit returns the outcome and the lines that explain it.
func (d *testDaemon) audit() (a auditCounts, why string) {
	d.t.Helper()
	out, why, code := d.in("audit", "--json")
	if code != exitDone && code != exitNone {
		d.t.Fatalf("audit: exit code %d: %s", code, why)
	}
	return d.readAudit(out, code), why
}

// auditIn waits until an audit is clean.
func (d *testDaemon) auditIn(most time.Duration) {
	d.t.Helper()
	eventually(d.t, most, func() string {
		out, why, code := d.in("audit", "--json")
		if code != exitCannot && d.readAudit(out, code).differences() == 0 {
			return ""
		}
		return "audit: " + out + why
	})
}

func (d *testDaemon) readAudit(out string, code int) (a auditCounts) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		d.t.Fatalf("audit %q: %v", out, err)
	}
	if a.differences() > 0 != (code == exitNone) {
		d.t.Errorf("audit: exit code %d with %+v", code, a)
	}
	if a.Checked == 0 {
		d.t.Error("audit: nothing was checked")
	}
	return a
}

// auditClean fails the test unless the table equals /proc.
func (d *testDaemon) auditClean() {
	d.t.Helper()
	if a, why := d.audit(); a.differences() > 0 {
		d.t.Errorf("audit: got %+v, want no difference:\n%s", a, why)
	}
}

// whole waits until no repair is under way.
func (d *testDaemon) whole(most time.Duration) {
	d.t.Helper()
	eventually(d.t, most, func() string {
		if s := d.status(); s.StaleSince != nil {
			return fmt.Sprintf("the table is stale; %d lost, %d gaps, %d resyncs", s.Lost, s.Gaps, s.Resyncs)
		}
		return ""
	})
}

// records is the daemon's event stream, read into memory until the test ends.
type records struct {
	mu   sync.Mutex
	list []streamRecord
}

// streamRecord is a record of /v1/events.
type streamRecord struct {
	Type       string
	PID, TID   uint32
	StartTicks uint64 `json:"start_ticks"`
	Comm       string
	Lost       *uint64
}

// follow opens the stream; what happens from now on is in it.
func (d *testDaemon) follow(threads bool) *records {
	d.t.Helper()
	client, err := serve.Dial(d.t.Context(), filepath.Join(d.dir, table.SocketName))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := client.Events(ctx, serve.EventsOptions{Threads: threads})
	if err != nil {
		cancel()
		d.t.Fatal(err)
	}
	r, done := &records{}, make(chan struct{})
	if _, err := stream.Next(); err != nil { // hello
		d.t.Fatal(err)
	}
	go func() {
		defer close(done)
		for {
			line, err := stream.Next()
			var rec streamRecord
			if err != nil || json.Unmarshal(line, &rec) != nil {
				return
			}
			r.mu.Lock()
			r.list = append(r.list, rec)
			r.mu.Unlock()
		}
	}()
	d.t.Cleanup(func() {
		cancel()
		stream.Close()
		client.Close()
		<-done
	})
	return r
}

// matching are the records so far that f selects.
func (r *records) matching(f func(*streamRecord) bool) (found []streamRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		if f(&r.list[i]) {
			found = append(found, r.list[i])
		}
	}
	return found
}

// eventually waits until ok, which says why it is not so yet.
func eventually(t *testing.T, most time.Duration, ok func() string) {
	t.Helper()
	for deadline := time.Now().Add(most); ; time.Sleep(10 * time.Millisecond) {
		why := ok()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", most, why)
		}
	}
}
