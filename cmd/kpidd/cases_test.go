package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/internal/privileged"
	"golang.org/x/sys/unix"
)

// The numbers B… are those of the public reports of such faults in other tools.

// eachSource runs a test with a daemon on each source that tells events.
func eachSource(t *testing.T, test func(t *testing.T, d *testDaemon)) {
	privileged.Hold(t)
	for _, source := range []string{"perf", "netlink"} {
		t.Run(source, func(t *testing.T) {
			d := startDaemon(t, daemonSpec{args: []string{"--source", source}})
			test(t, d)
			d.auditClean()
			d.stop()
		})
	}
}

// soon bounds what takes 50 ms on an idle machine.
const soon = 10 * time.Second

// gone waits until a process is no longer listed.
func (d *testDaemon) gone(pid int) {
	d.t.Helper()
	eventually(d.t, soon, func() string {
		if row, ok := d.process(pid); ok {
			return fmt.Sprintf("process %d is still there: %+v", pid, row)
		}
		return ""
	})
}

// TestPrivilegedExitedLeader (B44, B45): a process whose leader has left is a
// zombie with living threads; it ends with the last of them.
func TestPrivilegedExitedLeader(t *testing.T) {
	eachSource(t, func(t *testing.T, d *testDaemon) {
		stream := d.follow(false)
		p := sleeping(t, "leader")
		eventually(t, soon, func() string {
			row, ok := d.process(p.pid())
			if ok && row.State != nil && *row.State == "Z" && *row.Threads == 2 {
				return ""
			}
			return fmt.Sprintf("got %+v (%v), want state Z and 2 threads", row, ok)
		})
		if n := len(d.ps("-L", "-p", strconv.Itoa(p.pid()))); n != 2 {
			t.Errorf("threads: got %d rows, want 2", n)
		}
		d.auditClean()
		ends := func() int {
			return len(stream.matching(func(r *streamRecord) bool { return r.Type == "exit" && r.PID == uint32(p.pid()) }))
		}
		if n := ends(); n != 0 {
			t.Errorf("got %d exits of the process while a thread lives", n)
		}
		p.kill()
		d.gone(p.pid())
		eventually(t, soon, func() string {
			if n := ends(); n != 1 {
				return fmt.Sprintf("got %d exits of the process, want 1", n)
			}
			return ""
		})
	})
}

// TestPrivilegedThreadsEnd (B47): the end of a thread is not that of its process.
func TestPrivilegedThreadsEnd(t *testing.T) {
	eachSource(t, func(t *testing.T, d *testDaemon) {
		const threads = 50
		stream := d.follow(true)
		p := sleeping(t, "shrink", strconv.Itoa(threads))
		eventually(t, soon, func() string {
			if _, ok := d.process(p.pid()); !ok {
				return "the process is not there"
			}
			return ""
		})
		ends := func() (ofThreads, ofProcess int) {
			for _, r := range stream.matching(func(r *streamRecord) bool { return r.Type == "exit" && r.PID == uint32(p.pid()) }) {
				if r.TID == r.PID {
					ofProcess++
				} else {
					ofThreads++
				}
			}
			return ofThreads, ofProcess
		}
		eventually(t, soon, func() string {
			row, ok := d.process(p.pid())
			if !ok || row.State != nil || *row.Threads < 1 || *row.Threads > threads+1 {
				t.Fatalf("got %+v (%v), want a living process of 1 to %d threads", row, ok, threads+1)
			}
			ofThreads, _ := ends()
			if *row.Threads > 1 || ofThreads < threads {
				return fmt.Sprintf("got %d threads after %d exits, want 1 after %d", *row.Threads, ofThreads, threads)
			}
			return ""
		})
		if ofThreads, ofProcess := ends(); ofThreads != threads || ofProcess != 0 {
			t.Errorf("stream: got %d exits of threads and %d of the process, want %d and 0", ofThreads, ofProcess, threads)
		}
	})
}

// TestPrivilegedThreadExecs (B48): when a thread that is no leader executes a
// program, the process lives on under its number, with its start, alone.
func TestPrivilegedThreadExecs(t *testing.T) {
	eachSource(t, func(t *testing.T, d *testDaemon) {
		stream := d.follow(false)
		p := storm(t, "threadexec")
		var before psRow
		eventually(t, soon, func() string {
			row, ok := d.process(p.pid())
			if before = row; !ok || *row.Threads != 2 {
				return fmt.Sprintf("got %+v (%v), want 2 threads", row, ok)
			}
			return ""
		})
		eventually(t, soon, func() string {
			row, ok := d.process(p.pid())
			if ok && row.Comm == "sleep" && *row.Threads == 1 && *row.Gen == *before.Gen {
				return ""
			}
			return fmt.Sprintf("got %+v (%v), want sleep, 1 thread, generation %d", row, ok, *before.Gen)
		})
		if rows := d.ps("-L", "-p", strconv.Itoa(p.pid())); len(rows) != 1 {
			t.Errorf("threads: got %+v, want the leader alone", rows)
		}
		d.auditClean()
		told := stream.matching(func(r *streamRecord) bool {
			return r.PID == uint32(p.pid()) && (r.Type == "exit" || r.Type == "exec" && r.Comm == "sleep")
		})
		if len(told) == 0 || told[len(told)-1].Type != "exec" {
			t.Errorf("stream: got %+v, want the exec of sleep last", told)
		}
		p.kill()
		d.gone(p.pid())
	})
}

// TestPrivilegedOneRow (B51): a process of many threads is one row.
func TestPrivilegedOneRow(t *testing.T) {
	eachSource(t, func(t *testing.T, d *testDaemon) {
		const threads = 1000
		p := sleeping(t, "threads", strconv.Itoa(threads))
		eventually(t, soon, func() string {
			row, ok := d.process(p.pid()) // fails if there is more than one
			if !ok || *row.Threads != threads+1 {
				return fmt.Sprintf("got %+v (%v), want %d threads", row, ok, threads+1)
			}
			return ""
		})
		if n := len(d.ps("-L", "-p", strconv.Itoa(p.pid()))); n != threads+1 {
			t.Errorf("-L: got %d rows, want %d", n, threads+1)
		}
		p.kill()
		d.gone(p.pid())
	})
}

// TestPrivilegedHostileNames (B18, B19, B20): names with a blank, a parenthesis, a
// newline and a byte that is no UTF-8 neither move the other fields nor break a
// line, for tasks older than the daemon and younger ones.
func TestPrivilegedHostileNames(t *testing.T) {
	privileged.Hold(t)
	blank := filepath.Join(t.TempDir(), "sle ep")
	copyFile(t, "/bin/sleep", blank)
	const (
		inJSON = "a) R 1 \n\\xff(b"
		inText = `a) R 1 \n\xff(b`
	)
	want := map[int]string{
		start(t, blank, "60").pid(): "sle ep",
		sleeping(t, "comm").pid():   inJSON,
	}
	for _, source := range []string{"perf", "netlink"} {
		t.Run(source, func(t *testing.T) {
			d := startDaemon(t, daemonSpec{args: []string{"--source", source}})
			want := map[int]string{
				start(t, blank, "60").pid(): "sle ep",
				sleeping(t, "comm").pid():   inJSON,
			}
			for pid, comm := range want {
				hasName(t, d, pid, comm)
			}
			d.auditClean()
			d.stop()
		})
	}
	d := startDaemon(t, daemonSpec{args: perfSource})
	for pid, comm := range want {
		hasName(t, d, pid, comm)
		if comm != inJSON {
			continue
		}
		out, _, _ := d.in("ps", "-p", strconv.Itoa(pid), "-o", "comm=", "-o", "ppid=")
		if words := fmt.Sprintf("%s %7d\n", fmt.Sprintf("%-15s", inText), os.Getpid()); out != words {
			t.Errorf("text: got %q, want %q", out, words)
		}
	}
	d.stop()
}

func hasName(t *testing.T, d *testDaemon, pid int, comm string) {
	t.Helper()
	eventually(t, soon, func() string {
		row, ok := d.process(pid)
		if !ok || row.Comm != comm || row.PPID != uint32(os.Getpid()) || *row.Threads != 1 {
			return fmt.Sprintf("process %d: got %+v (%v), want %q of %d", pid, row, ok, comm, os.Getpid())
		}
		return ""
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPrivilegedKernelThreads (B29): a slash in the name of a kernel thread is
// part of it, and only kernel threads are said to be some.
func TestPrivilegedKernelThreads(t *testing.T) {
	privileged.Hold(t)
	d := startDaemon(t, daemonSpec{args: perfSource})
	slashes, kernel := 0, 0
	for _, row := range d.ps() {
		if isKernel := row.PID == 2 || row.PPID == 2; row.KThread != isKernel {
			t.Errorf("got %+v, want kthread = %v", row, isKernel)
		}
		if !row.KThread {
			continue
		}
		kernel++
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", row.PID))
		if err != nil {
			continue // it has ended
		}
		// A worker's name is followed by what it works on, which changes.
		if row.Comm == "" || !strings.HasPrefix(strings.TrimSuffix(string(name), "\n"), row.Comm) {
			t.Errorf("kernel thread %d: got %q, want the head of %q", row.PID, row.Comm, name)
		}
		if strings.HasPrefix(row.Comm, "ksoftirqd/") || strings.HasPrefix(row.Comm, "kworker/") {
			slashes++
		}
	}
	if kernel == 0 || slashes == 0 {
		t.Errorf("got %d kernel threads, %d with a slash, want some", kernel, slashes)
	}
	d.stop()
}

// TestPrivilegedHighNumber (B33): numbers up to the highest there are.
func TestPrivilegedHighNumber(t *testing.T) {
	privileged.Hold(t)
	const want = 4_194_100
	raise(t, "/proc/sys/kernel/pid_max", 4<<20)
	keepLastPID(t)
	d := startDaemon(t, daemonSpec{args: perfSource})
	p := storm(t, "at", strconv.Itoa(want))
	pid, err := strconv.Atoi(strings.TrimPrefix(p.ready(), "pid="))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	if pid < want {
		t.Fatalf("the kernel gave number %d, want %d or more", pid, want)
	}
	eventually(t, soon, func() string {
		row, ok := d.process(pid)
		if !ok || row.PID != uint32(pid) || row.PPID != uint32(p.pid()) {
			return fmt.Sprintf("got %+v (%v), want process %d", row, ok, pid)
		}
		return ""
	})
	d.auditClean()
	unix.Kill(pid, unix.SIGKILL)
	p.kill()
	d.gone(pid)
	d.stop()
}

// mountProc is a command that gives a new PID namespace its own /proc and execs
// its arguments.
var mountProc = []string{"sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$@"`, "sh"}

// TestPrivilegedReusedNumber (B1, B5): in a namespace with few numbers each is
// used again and again; each life has a generation and a name of its own.
func TestPrivilegedReusedNumber(t *testing.T) {
	privileged.Hold(t)
	needs(t, "nsenter")
	d := startDaemon(t, daemonSpec{
		args: perfSource, wrap: mountProc, cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
	})
	in := func(args ...string) *process {
		return start(t, "nsenter", append([]string{"-t", strconv.Itoa(d.cmd.Process.Pid), "-p", "-m"}, args...)...)
	}
	if err := in("sh", "-c", "echo 400 >/proc/sys/kernel/pid_max").wait(); err != nil {
		privileged.Missing(t, "pid_max-of-a-namespace")
	}
	r, err := table.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lives := map[uint32]map[uint32]string{} // of each number: name by generation
	reuse := in(stormPath(t), "reuse", "600")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reuse.counts()
	}()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(time.Millisecond):
		}
		rows, _ := r.AppendTasks(nil)
		for i := range rows {
			noteLife(t, lives, &rows[i])
		}
	}
	reused := 0
	for _, gens := range lives {
		if len(gens) > 1 {
			reused++
		}
	}
	s := d.status()
	t.Logf("%d numbers seen, %d of them in two lives or more; %d repaired, %d resyncs", len(lives), reused, s.Repaired, s.Resyncs)
	if reused == 0 {
		t.Error("no number was seen in two lives")
	}
	d.stop()
}

// noteLife adds what was seen of a task of storm reuse: its first name is that of
// its parent.
func noteLife(t *testing.T, lives map[uint32]map[uint32]string, h *table.Hot) {
	name := string(h.Name())
	if !strings.HasPrefix(name, "g") {
		return
	}
	if lives[h.TID] == nil {
		lives[h.TID] = map[uint32]string{}
	}
	if old, ok := lives[h.TID][h.Gen]; ok && old != name {
		t.Errorf("number %d, generation %d: got the name %q, had %q", h.TID, h.Gen, name, old)
	}
	lives[h.TID][h.Gen] = name
}

// TestPrivilegedSilentNetlink (B66): where the proc connector does not speak, the
// daemon takes another source and says why; if it was forced, it ends.
func TestPrivilegedSilentNetlink(t *testing.T) {
	privileged.Hold(t)
	needs(t, "setpriv")
	for _, c := range []struct {
		name string
		wrap []string
		why  string
	}{
		{"network", []string{"unshare", "-n", "setpriv", "--bounding-set", "-sys_admin,-perfmon"}, "network namespace"},
		{"user", []string{"unshare", "-U", "-r"}, "silent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := exec.Command(c.wrap[0], append(slices.Clone(c.wrap[1:]), "true")...).Run(); err != nil {
				privileged.Missing(t, "unshare-"+c.name)
			}
			line := refused(t, daemonSpec{wrap: c.wrap, args: []string{"--source", "netlink"}})
			if !strings.Contains(line, c.why) {
				t.Errorf("netlink alone: got %q, want %q in it", line, c.why)
			}
			d := startDaemon(t, daemonSpec{wrap: c.wrap})
			if line := d.waitLine("ready in "); !strings.Contains(line, "source poll") {
				t.Errorf("got %q, want source poll", line)
			}
			if line := d.waitLine("source netlink not used: "); !strings.Contains(line, c.why) {
				t.Errorf("got %q, want %q in it", line, c.why)
			}
			d.waitLine("source perf not used: ")
			s := d.status()
			if s.Source != "poll" || !strings.Contains(s.SourcesRefused["netlink"], c.why) {
				t.Errorf("status: got %q and %q, want poll and why", s.Source, s.SourcesRefused)
			}
			d.stop()
		})
	}
}
