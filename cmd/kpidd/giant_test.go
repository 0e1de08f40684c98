package main

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/internal/privileged"
)

// TestPrivilegedGiant: 100,000 idle threads beside the processes cost a listing
// nothing. The target is 1.05 times; this test asserts 1.3, the benchmarks show
// the rest.
func TestPrivilegedGiant(t *testing.T) {
	privileged.Hold(t)
	const (
		threads   = 100_000
		processes = 1000
	)
	raise(t, "/proc/sys/kernel/pid_max", 1<<18)
	raise(t, "/proc/sys/kernel/threads-max", 1<<18)
	raise(t, "/proc/sys/vm/max_map_count", 1<<18)
	d := startDaemon(t, daemonSpec{args: perfSource})
	sleeping(t, "zombie", strconv.Itoa(processes))
	eventually(t, soon, func() string {
		// While they are being verified, the listing meets the daemon's stores.
		if s := d.status(); s.Processes < processes || s.Unverified > 100 {
			return fmt.Sprintf("got %d processes, %d to be verified, want %d and few", s.Processes, s.Unverified, processes)
		}
		return ""
	})
	r, err := table.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	without, few := leastListing(r)
	giant := sleeping(t, "threads", strconv.Itoa(threads))
	// So many births at once may overrun the rings; then it is repaired.
	eventually(t, 20*time.Second, func() string {
		row, ok, _ := r.ByPID(uint32(giant.pid()))
		if _, err := r.Fresh(); !ok || row.Threads != threads+1 || err != nil {
			return fmt.Sprintf("got %d threads, want %d; the table: %v", row.Threads, threads+1, err)
		}
		return ""
	})
	d.whole(20 * time.Second)
	d.auditClean()
	with, many := leastListing(r)
	t.Logf("listing of %d and %d processes: %v without and %v with %d threads, %.3f times; %d B of table",
		few, many, without, with, threads, float64(with)/float64(without), d.status().TableBytes)
	// A process more or less is not what this is about.
	if ratio := float64(with) / float64(without) * float64(few) / float64(many); ratio > 1.3 {
		t.Errorf("listing takes %.2f times as long beside %d threads, want at most 1.3", ratio, threads)
	}
	giant.kill()
	// Their exits may, too.
	eventually(t, 20*time.Second, func() string {
		row, ok, _ := r.ByPID(uint32(giant.pid()))
		if _, err := r.Fresh(); ok || err != nil {
			s := d.status()
			return fmt.Sprintf("the process is listed (%v) with %d threads, the table %v; %d tasks to be verified, %d lost, %d resyncs",
				ok, row.Threads, err, s.Unverified, s.Lost, s.Resyncs)
		}
		return ""
	})
	s := d.status()
	t.Logf("after their exit: %d lost, %d resyncs", s.Lost, s.Resyncs)
	d.auditClean()
	d.stop()
}

// leastListing is the least time of many listings, and what the last one found.
func leastListing(r *table.Reader) (least time.Duration, processes int) {
	least = time.Hour
	rows := make([]table.Hot, 0, 1<<12)
	for range 2000 {
		begin := time.Now()
		rows, _ = r.AppendLeaders(rows[:0])
		least = min(least, time.Since(begin))
	}
	return least, len(rows)
}

// TestPrivilegedManyForks: forks that touch every page of the tree leave the
// table small.
func TestPrivilegedManyForks(t *testing.T) {
	privileged.Hold(t)
	forks := 200_000
	if long() {
		forks = 5_000_000
		t.Setenv("STORM_SECONDS", "1800")
	}
	raise(t, "/proc/sys/kernel/pid_max", 4<<20)
	keepLastPID(t)
	d := startDaemon(t, daemonSpec{args: perfSource})
	spread := storm(t, "spread", strconv.Itoa(forks))
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			s := d.status()
			peak.Store(max(peak.Load(), s.Threads))
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	if got := spread.counts()["forks"]; got != forks {
		t.Errorf("the storm made %d forks, want %d", got, forks)
	}
	close(stop)
	<-done
	d.auditClean()
	s := d.status()
	most := 20<<20 + 200*peak.Load()
	t.Logf("%d forks, peak %d tasks: table %d B, resident %d B, lost %d, resyncs %d, repaired %d",
		forks, peak.Load(), s.TableBytes, s.RSSBytes, s.Lost, s.Resyncs, s.Repaired)
	if s.TableBytes > most {
		t.Errorf("table: got %d B, want at most %d", s.TableBytes, most)
	}
	if least := uint64(16 << 20); s.TableBytes < least {
		t.Errorf("table: got %d B, want at least %d: not every page was touched", s.TableBytes, least)
	}
	if s.Events < 2*uint64(forks) {
		t.Errorf("events: got %d, want at least %d", s.Events, 2*forks)
	}
	d.stop()
}
