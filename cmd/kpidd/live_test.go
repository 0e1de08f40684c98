package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"
)

// seenMax is how long a change may stay unseen: under poll a second and a walk
// of /proc, on a busy machine.
const seenMax = 20 * time.Second

// TestDaemonFollowsChild: with whichever source opens for this user, a child
// appears under its parent, and its new name, its new program and its end do.
func TestDaemonFollowsChild(t *testing.T) {
	d := startDaemon(t, daemonSpec{})
	t.Logf("%s", d.waitLine("ready in "))
	child := exec.Command("sh", "-c", `read go; printf kpidd-renamed >/proc/$$/comm; read go; exec sleep 60`)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := false
	defer func() {
		if !reaped {
			child.Process.Kill()
			child.Wait()
		}
	}()
	pid := child.Process.Pid

	var first psRow
	is := func(comm string) func() string {
		return func() string {
			row, ok := d.process(pid)
			if ok && row.Comm == comm && row.PPID == uint32(os.Getpid()) && row.Threads != nil && *row.Threads == 1 {
				first = row
				return ""
			}
			return fmt.Sprintf("process %d: got %+v (%v), want child %q of %d", pid, row, ok, comm, os.Getpid())
		}
	}
	eventually(t, seenMax, is("sh"))
	gen := *first.Gen
	io.WriteString(stdin, "go\n")
	eventually(t, seenMax, is("kpidd-renamed"))
	io.WriteString(stdin, "go\n")
	eventually(t, seenMax, is("sleep"))
	if *first.Gen != gen {
		t.Errorf("generation after exec: got %d, want %d as before", *first.Gen, gen)
	}
	if d.status().Source != "poll" { // which is late by design
		d.auditClean()
	}

	child.Process.Kill()
	child.Wait()
	reaped = true
	eventually(t, seenMax, func() string {
		if row, ok := d.process(pid); ok {
			return fmt.Sprintf("process %d is still there: %+v", pid, row)
		}
		return ""
	})
	d.stop()
}

// TestDaemonListsThreads: ps shows one row for this process and, with -L, one for
// each of its threads.
func TestDaemonListsThreads(t *testing.T) {
	d := startDaemon(t, daemonSpec{})
	self := strconv.Itoa(os.Getpid())
	row, ok := d.process(os.Getpid())
	if !ok || row.TID != row.PID {
		t.Fatalf("got %+v (%v), want the leader of process %s", row, ok, self)
	}
	eventually(t, seenMax, func() string {
		want, err := threadsOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for _, r := range d.ps("-L", "-p", self) {
			if r.PID != uint32(os.Getpid()) || r.PPID != uint32(os.Getppid()) {
				t.Fatalf("got %+v, want a thread of %s", r, self)
			}
			got = append(got, r.TID)
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("threads: got %d, want %d", got, want)
		}
		return ""
	})
	d.stop()
}

func threadsOf(pid int) (tids []uint32, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		tid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			return nil, err
		}
		tids = append(tids, uint32(tid))
	}
	slices.Sort(tids)
	return tids, nil
}

// TestDaemonKilled: clients notice by the heartbeat that the writer is gone, and
// the next daemon clears away what it left.
func TestDaemonKilled(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, daemonSpec{dir: dir, args: []string{"--source", "poll"}})
	file := d.tableFile()
	d.cmd.Process.Kill()
	<-d.exited
	killed := time.Now()
	eventually(t, 5*time.Second, func() string {
		_, errs, code := d.in("ps", "-p", "1")
		if code != exitDone {
			t.Fatalf("ps: exit code %d: %s", code, errs)
		}
		if errs == "" {
			return "ps does not notice that the daemon is gone"
		}
		if !errorLine.MatchString(errs) {
			t.Errorf("ps: got %q, want one line", errs)
		}
		return ""
	})
	if took := time.Since(killed); took > 2500*time.Millisecond {
		t.Errorf("ps noticed after %v, want at most 2 s and a half", took)
	}
	if out, errs, code := d.in("audit"); code != exitCannot || !errorLine.MatchString(errs) || out != "" {
		t.Errorf("audit: got %d, %q, %q, want 3 and one line", code, out, errs)
	}
	if _, errs, code := d.in("status"); code != exitCannot || !errorLine.MatchString(errs) {
		t.Errorf("status: got %d, %q, want 3 and one line", code, errs)
	}

	next := startDaemon(t, daemonSpec{dir: dir, args: []string{"--source", "poll"}})
	if next.tableFile() != file {
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("the next start left the old table %s", file)
		}
	}
	if _, ok := next.process(1); !ok {
		t.Error("the next daemon's table does not show process 1")
	}
	next.stop()
}
