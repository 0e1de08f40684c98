package structures

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/arch/archtest"
)

// row compares several ways to do one thing. The first is kpidd's, which the
// others are compared with.
type row struct {
	name       string // sub-name of a benchmark, such as hit/keys=1k/threads=1
	threads    int    // how many run the loop at once: 1 or 2
	ops        int    // operations of a burst, where nothing says how many it should have
	heavy      bool   // takes over a second to set up
	contenders []contender
}

// contender is one way to do it.
type contender struct {
	name    string
	missing func() error // why it cannot be had; nil: it can
	setUp   func() bench
}

// bench is a contender that is set up.
type bench struct {
	// loop does so many operations and returns how many of them gave what they
	// should. No two calls get the same base, which is a multiple of 2^24, the most
	// operations of a call.
	loop func(thread, ops int, base uint64) (good int)
	// beside, if there is one, runs on the other processor all the while.
	beside func(base uint64)
	// mayFail allows an operation to tell that it could not be done.
	mayFail bool
	// process does the loop, in place of it, in another process.
	process *process
	close   func()
}

const opsMax = 1 << 24

// team measures bursts of a bench on two threads, each on a processor of its own.
type team struct {
	jobs  [2]chan func() time.Duration
	took  chan time.Duration
	turns uint64
}

func newTeam() *team {
	t := &team{took: make(chan time.Duration, 2)}
	for i := range t.jobs {
		jobs := make(chan func() time.Duration)
		t.jobs[i] = jobs
		go func() {
			archtest.Pin(i)
			for job := range jobs {
				t.took <- job()
			}
		}()
	}
	return t
}

func (t *team) close() {
	for _, jobs := range t.jobs {
		close(jobs)
	}
}

// burst returns the time in which each thread has done ops operations.
func (t *team) burst(tb testing.TB, b bench, threads, ops int) time.Duration {
	tb.Helper()
	if b.process != nil {
		took, good, err := b.process.burst(ops)
		if err != nil || good != threads*ops {
			tb.Fatalf("got %d operations, %v, want %d", good, err, threads*ops)
		}
		return took
	}
	var ready atomic.Int32
	var stop atomic.Bool
	var good atomic.Int64
	all := int32(threads)
	if b.beside != nil {
		all++
		base := t.turn()
		t.jobs[threads] <- func() time.Duration {
			meet(&ready, all)
			for ; !stop.Load(); base++ {
				b.beside(base)
			}
			return 0
		}
	}
	for thread := range threads {
		base := t.turn()
		t.jobs[thread] <- func() time.Duration {
			meet(&ready, all)
			begin := time.Now()
			n := b.loop(thread, ops, base)
			took := time.Since(begin)
			good.Add(int64(n))
			return took
		}
	}
	var sum time.Duration
	for range threads {
		sum += <-t.took
	}
	stop.Store(true)
	if b.beside != nil {
		<-t.took
	}
	if n := int(good.Load()); n != threads*ops && !b.mayFail {
		tb.Fatalf("got %d operations, want %d", n, threads*ops)
	}
	return sum / time.Duration(threads)
}

func (t *team) turn() uint64 {
	t.turns++
	return t.turns * opsMax
}

// meet returns when all are here, or some time later when they stay away.
func meet(ready *atomic.Int32, all int32) {
	ready.Add(1)
	for range 1 << 14 {
		if ready.Load() >= all {
			return
		}
		arch.Pause()
	}
	for range 64 {
		if ready.Load() >= all {
			return
		}
		runtime.Gosched()
	}
}

// benchmark runs rows as benchmarks, one for each contender.
func benchmark(b *testing.B, rows []row) {
	for _, r := range rows {
		b.Run(r.name, func(b *testing.B) {
			if r.heavy && quick() {
				b.Skip("takes over a second to set up: set KPIDD_BENCH_LOAD=1")
			}
			for _, c := range r.contenders {
				b.Run(c.name, func(b *testing.B) { c.benchmark(b, r) })
			}
		})
	}
}

func (c contender) benchmark(b *testing.B, r row) {
	if c.missing != nil {
		if err := c.missing(); err != nil {
			b.Skip(err)
		}
	}
	t := newTeam()
	defer t.close()
	bench := c.setUp()
	defer bench.end()
	var took time.Duration
	for b.Loop() {
		took += t.burst(b, bench, r.threads, r.ops)
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(r.ops), "ns/op")
}

func (b bench) end() {
	if b.close != nil {
		b.close()
	}
}
