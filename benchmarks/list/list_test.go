// Package list compares ways to list the processes of a machine: kpidd's table,
// a readdir of /proc, and ps.
package list

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/live/netlink"
	"github.com/kpidd/kpidd/core/live/perf"
	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
)

// BenchmarkList lists all processes, beside no other load and, where
// KPIDD_BENCH_LOAD is 1, beside one process with 100,000 idle threads.
func BenchmarkList(b *testing.B) {
	dir := daemon(b)
	b.Run("threads=0", func(b *testing.B) { ways(b, dir) })
	b.Run("threads=100k", func(b *testing.B) {
		if os.Getenv("KPIDD_BENCH_LOAD") != "1" {
			b.Skip("makes 100,000 threads: set KPIDD_BENCH_LOAD=1")
		}
		threads(b, 100_000)
		ways(b, dir)
	})
}

func ways(b *testing.B, dir string) {
	b.Run("kpidd", func(b *testing.B) {
		r, err := table.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		var tasks []table.Hot
		sum := uint64(0)
		for b.Loop() {
			tasks, _ = r.AppendLeaders(tasks[:0])
			sum += checksum(tasks)
		}
		report(b, len(tasks), sum)
	})
	b.Run("readdir", func(b *testing.B) {
		proc, err := procfile.Open("/proc")
		if err != nil {
			b.Fatal(err)
		}
		defer proc.Close()
		var pids []uint32
		sum := uint64(0)
		for b.Loop() {
			if pids, err = proc.PIDs(pids[:0]); err != nil {
				b.Fatal(err)
			}
			sum += uint64(len(pids))
		}
		report(b, len(pids), sum)
	})
	b.Run("ps", func(b *testing.B) {
		ps, err := exec.LookPath("ps")
		if err != nil {
			b.Skip("no ps on PATH")
		}
		n := 0
		for b.Loop() {
			out, err := exec.Command(ps, "-e").Output()
			if err != nil {
				b.Fatal(err)
			}
			n = strings.Count(string(out), "\n") - 1
		}
		report(b, n, uint64(n))
	})
}

//go:noinline
func checksum(tasks []table.Hot) (sum uint64) {
	for i := range tasks {
		sum += uint64(tasks[i].TID) ^ tasks[i].StartTicks
	}
	return sum
}

func report(b *testing.B, processes int, sum uint64) {
	if sum == 0 {
		b.Fatal("nothing was listed")
	}
	b.ReportMetric(float64(processes), "processes")
}

// daemon follows the machine in this process until the benchmark ends, and
// returns its runtime directory.
func daemon(b *testing.B) string {
	path, err := os.MkdirTemp("/dev/shm", "kpidd-bench-")
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { os.RemoveAll(path) })
	dir := must(table.Hold(path))(b)
	proc := must(procfile.Open("/proc"))(b)
	src, _, err := live.Choose([]live.Opener{
		{Name: "perf", Open: func() (live.Source, error) { return perf.Open(perf.Options{}) }},
		{Name: "netlink", Open: func() (live.Source, error) { return netlink.Open(netlink.Options{}) }},
	}, "")
	if err != nil {
		b.Skip(err)
	}
	w := must(table.Create(dir, table.Origin{BootID: must(table.BootID())(b), ClockTicks: must(procfile.ClockTicks())(b)}))(b)
	ready := make(chan struct{})
	f := live.NewFollower(live.Config{
		Source: src, Engine: task.New(w, 100), Table: w, Feed: live.NewFeed(live.FeedSize), Proc: proc,
		Ready: func() { close(ready) },
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
		src.Close()
		w.Close()
		proc.Close()
		dir.Release()
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		b.Fatal("the follower ended before it was ready")
	case <-time.After(10 * time.Second):
		b.Fatal("not ready within 10 s")
	}
	return path
}

func must[T any](v T, err error) func(*testing.B) T {
	return func(b *testing.B) T {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
}

// threads starts a process with n idle threads, raising the limits that stand in
// the way; all is undone when b ends.
func threads(b *testing.B, n int) {
	for name, least := range map[string]int{"kernel/pid_max": 2 * n, "kernel/threads-max": 2 * n, "vm/max_map_count": 4 * n} {
		file := filepath.Join("/proc/sys", name)
		old, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		if v, _ := strconv.Atoi(strings.TrimSpace(string(old))); v >= least {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(least)), 0); err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { os.WriteFile(file, old, 0) })
	}
	bin := filepath.Join(b.TempDir(), "storm")
	if out, err := exec.Command("cc", "-O2", "-pthread", "-o", bin, "../../cmd/kpidd/testdata/storm.c").CombinedOutput(); err != nil {
		b.Skipf("no C compiler: %v %s", err, out)
	}
	storm := exec.Command(bin, "threads", strconv.Itoa(n))
	out, err := storm.StdoutPipe()
	if err == nil {
		err = storm.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { storm.Process.Kill(); storm.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatalf("storm threads: got %q, %v", line, err)
	}
	time.Sleep(500 * time.Millisecond) // until the table has them
}
