package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kpidd/kpidd/internal/privileged"
	"golang.org/x/sys/unix"
)

var perfSource = []string{"--source", "perf"}

// stressOps is the line of stress-ng that counts what one kind of its workers did.
var stressOps = regexp.MustCompile(`metrc: \[\d+\] (fork|clone) +(\d+) `)

// bigStorm makes every kind of short-lived task at once, for about the given
// seconds, and returns the least number of events that it caused: a fork and an
// exit for each process and thread, and an exec for those that ran a program.
func bigStorm(t *testing.T, seconds, threads, execs int) (events uint64) {
	t.Helper()
	stress := exec.Command(needs(t, "stress-ng"), "--fork", "4", "--clone", "4",
		"-t", strconv.Itoa(seconds), "--metrics-brief")
	var out strings.Builder
	stress.Stdout, stress.Stderr = &out, &out
	if err := stress.Start(); err != nil {
		t.Fatal(err)
	}
	thread := storm(t, "thread", strconv.Itoa(threads))
	program := storm(t, "exec", strconv.Itoa(execs))
	events = 2*uint64(thread.counts()["threads"]) + 3*uint64(program.counts()["execs"])
	if err := stress.Wait(); err != nil {
		t.Fatalf("stress-ng: %v\n%s", err, out.String())
	}
	for lines := bufio.NewScanner(strings.NewReader(out.String())); lines.Scan(); {
		if m := stressOps.FindStringSubmatch(lines.Text()); m != nil {
			ops, _ := strconv.ParseUint(m[2], 10, 64)
			events += 2 * ops
		}
	}
	if want := 2*uint64(threads) + 3*uint64(execs); events <= want {
		t.Fatalf("the storm counts %d events, want more than %d", events, want)
	}
	return events
}

// TestPrivilegedStorm: after a storm the table equals /proc, and nothing was lost
// on the way.
func TestPrivilegedStorm(t *testing.T) {
	privileged.Hold(t)
	seconds := 3
	if long() {
		seconds = 10
	}
	for _, c := range []struct {
		name     string
		spec     daemonSpec
		seconds  int
		execs    int
		disturb  func(t *testing.T)
		mayMerge bool // a comparison with /proc is no fault here
	}{
		{name: "perf", spec: daemonSpec{args: perfSource}, seconds: seconds, execs: 20_000},
		{name: "netlink", spec: daemonSpec{args: []string{"--source", "netlink"}}, seconds: 2, execs: 2_000},
		{name: "one-cpu", spec: daemonSpec{args: perfSource, wrap: []string{"taskset", "-c", "1"}}, seconds: 2, execs: 2_000},
		{name: "cpu-offline", spec: daemonSpec{args: perfSource}, seconds: 3, execs: 2_000, disturb: offlineOnce, mayMerge: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.spec.wrap) > 0 {
				needs(t, c.spec.wrap[0])
			}
			if c.disturb != nil && unix.Access(cpu1Online, unix.W_OK) != nil {
				privileged.Missing(t, "cpu-hotplug")
			}
			d := startDaemon(t, c.spec)
			before := d.status()
			done := make(chan struct{})
			go func() {
				defer close(done)
				if c.disturb != nil {
					time.Sleep(time.Second)
					c.disturb(t)
				}
			}()
			want := bigStorm(t, c.seconds, 50_000, c.execs)
			<-done
			d.auditClean()
			s := d.status()
			got := s.Events - before.Events
			t.Logf("%d events for %d of the storm, %d lost, %d resyncs, %d repaired, %d ns an event, %d wake-ups",
				got, want, s.Lost, s.Resyncs, s.Repaired, s.NsPerEvent, s.Wakeups)
			if got < want {
				t.Errorf("events: got %d, want at least %d", got, want)
			}
			if s.Lost != 0 || s.InvariantViolations != 0 || s.Resyncs != 0 && !c.mayMerge {
				t.Errorf("got lost %d, resyncs %d, invariant violations %d, want none", s.Lost, s.Resyncs, s.InvariantViolations)
			}
			d.stop()
		})
	}
}

const cpu1Online = "/sys/devices/system/cpu/cpu1/online"

// offlineOnce takes CPU 1 out and brings it back.
func offlineOnce(t *testing.T) {
	set := func(value string) bool {
		if err := os.WriteFile(cpu1Online, []byte(value), 0); err != nil {
			t.Errorf("set %s to %s: %v", cpu1Online, value, err)
			return false
		}
		return true
	}
	t.Cleanup(func() { set("1") })
	if set("0") {
		time.Sleep(700 * time.Millisecond)
		set("1")
	}
}

// TestPrivilegedStartInStorm (B7): a table that is begun in the middle of a storm is
// right from its first moment.
func TestPrivilegedStartInStorm(t *testing.T) {
	privileged.Hold(t)
	const starts = 20
	stress := exec.Command(needs(t, "stress-ng"), "--fork", "4", "--clone", "4", "-t", "100")
	if err := stress.Start(); err != nil {
		t.Fatal(err)
	}
	defer stress.Wait()
	defer stress.Process.Signal(unix.SIGTERM)
	storm(t, "thread", "100000000")
	time.Sleep(300 * time.Millisecond)
	failed := 0
	for i := range starts {
		begin := time.Now()
		d := startDaemon(t, daemonSpec{args: perfSource})
		ready := time.Since(begin)
		if a, why := d.audit(); a.differences() > 0 {
			failed++
			t.Errorf("start %d: got %+v, want no difference:\n%s", i+1, a, why)
		}
		if s := d.status(); i == 0 || s.Lost > 0 {
			t.Logf("start %d: ready after %v, %d events, %d lost, %d resyncs, %d repaired",
				i+1, ready, s.Events, s.Lost, s.Resyncs, s.Repaired)
		}
		d.stop()
	}
	if failed > 0 {
		t.Errorf("%d of %d starts were not clean", failed, starts)
	}
}

// TestPrivilegedStopped (B57): a daemon with small buffers that is stopped in a storm
// loses events, says so, and repairs its table by itself.
func TestPrivilegedStopped(t *testing.T) {
	privileged.Hold(t)
	for _, c := range []struct {
		source string
		exact  bool // the number of lost events is told
	}{
		{"perf", true},
		{"netlink", false},
	} {
		t.Run(c.source, func(t *testing.T) {
			d := startDaemon(t, daemonSpec{args: []string{"--source", c.source, "--ring-bytes", "64K"}})
			stream := d.follow(false)
			before := d.status()
			d.signal(unix.SIGSTOP)
			stopped := time.Now()
			workers := []*process{storm(t, "fork", "10000"), storm(t, "thread", "20000")}
			time.Sleep(time.Until(stopped.Add(3 * time.Second)))
			d.signal(unix.SIGCONT)
			var count uint64
			for _, w := range workers {
				n := w.counts()
				count += 2 * uint64(n["forks"]+n["threads"])
			}
			d.auditIn(time.Second)
			if !c.exact { // the number is known when each CPU has spoken again
				for _, cpu := range []string{"0", "1"} {
					exec.Command("taskset", "-c", cpu, "true").Run() // there may be no CPU 1
				}
				time.Sleep(200 * time.Millisecond)
			}
			s := d.status()
			received, lost := s.Events-before.Events, s.Lost-before.Lost
			t.Logf("storm %d, received %d, lost %d, gaps %d, resyncs %d, repaired %d", count, received, lost, s.Gaps, s.Resyncs, s.Repaired)
			if s.Gaps == 0 || s.Resyncs == 0 || lost == 0 {
				t.Errorf("got gaps %d, resyncs %d, lost %d, want some of each", s.Gaps, s.Resyncs, lost)
			}
			if received+lost < count {
				t.Errorf("received %d and lost %d of %d events", received, lost, count)
			}
			if s.StaleSince != nil {
				t.Errorf("got stale since %v, want null after the repair", *s.StaleSince)
			}
			eventually(t, time.Second, func() string { return gapThenResync(stream, lost, c.exact) })
			d.stop()
		})
	}
}

// gapThenResync says what the stream lacks: gaps that add up to lost, and a
// resync after the last of them.
func gapThenResync(stream *records, lost uint64, exact bool) string {
	told, whole := uint64(0), false
	marks := stream.matching(func(r *streamRecord) bool { return r.Type == "gap" || r.Type == "resync" })
	gaps := 0
	for _, r := range marks {
		if whole = r.Type == "resync"; whole {
			continue
		}
		gaps++
		if r.Lost != nil {
			told += *r.Lost
		}
	}
	if gaps == 0 || !whole || exact && told != lost {
		return fmt.Sprintf("stream: got %d gaps of %d events, want %d and a resync after them: %+v", gaps, told, lost, marks)
	}
	return ""
}

// TestPrivilegedAuditSees: the audit finds what one lost event in a thousand does
// to the table.
func TestPrivilegedAuditSees(t *testing.T) {
	privileged.Hold(t)
	d := startDaemon(t, daemonSpec{args: perfSource, env: []string{dropVar + "=1000"}})
	d.auditClean()
	sleeping(t, "threads", "5000")
	time.Sleep(200 * time.Millisecond)
	if a, why := d.audit(); a.Missing == 0 || a.Missing > 20 {
		t.Errorf("audit: got %+v, want about 5 missing:\n%s", a, why)
	}
	d.stop()
}
