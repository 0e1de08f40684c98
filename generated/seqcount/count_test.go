package seqcount

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch/archtest"
)

// count is a generated type, so that one suite runs over all.
type count interface {
	ReadBegin() (seq uint64)
	ReadRetry(seq uint64) bool
	Begin()
	End()
}

func TestCount(t *testing.T) {
	var c Count
	seq := c.ReadBegin()
	if c.ReadRetry(seq) {
		t.Errorf("no section: got %d and a retry, want to read", seq)
	}
	c.Begin()
	if !c.ReadRetry(seq) {
		t.Error("a section that began: got no retry")
	}
	c.End()
	if !c.ReadRetry(seq) {
		t.Error("a section that came and went: got no retry")
	}
	if now := c.ReadBegin(); now != seq+2 {
		t.Errorf("I2: got count %d after one section, want %d", now, seq+2)
	}
}

// A writer that stays inside: ReadBegin gives up within its bound.
func TestReadBeginBounded(t *testing.T) {
	var c Count
	c.Begin()
	begin := time.Now()
	if seq := c.ReadBegin(); seq&1 == 0 || !c.ReadRetry(seq) {
		t.Errorf("inside a section: got %d, want an odd count and a retry", seq)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("gave up after %v, want much less than a second", took)
	}
	c.End()
	if seq := c.ReadBegin(); c.ReadRetry(seq) {
		t.Errorf("after the section: got %d and a retry, want to read", seq)
	}
}

// A reader that finds a writer inside waits for it.
func TestReadBeginWaits(t *testing.T) {
	var c Count
	for range 50 {
		c.Begin()
		started := make(chan struct{})
		go func() {
			close(started)
			c.End()
		}()
		<-started
		seq := c.ReadBegin()
		for try := 0; seq&1 != 0 && try < 1000; try++ {
			seq = c.ReadBegin()
		}
		if seq&1 != 0 {
			t.Fatalf("got %d, want an even count", seq)
		}
	}
}

func TestMisuse(t *testing.T) {
	for name, run := range map[string]func(c *Count){
		"nested Begin":      func(c *Count) { c.Begin(); c.Begin() },
		"End without Begin": func(c *Count) { c.End() },
		"second End":        func(c *Count) { c.Begin(); c.End(); c.End() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", name)
				}
			}()
			run(new(Count))
		}()
	}
}

func TestStressCount(t *testing.T) {
	reads, err := torn(new(Count), archtest.StressTime())
	if err != nil {
		t.Error(err)
	}
	if reads == 0 {
		t.Error("no read succeeded: the check saw nothing")
	}
	t.Logf("%d reads", reads)
}

// A reader that does not look again must be caught by the same check.
func TestStressCountCatchesBusted(t *testing.T) {
	archtest.MustCatch(t, func(limit time.Duration) bool {
		_, err := torn(new(BustedCount), limit)
		return err != nil
	})
}

// torn lets one writer keep words equal and rising, while readers check that what
// they read between ReadBegin and ReadRetry is.
func torn(c count, limit time.Duration) (reads uint64, err error) {
	var data [16]atomic.Uint64
	var stop atomic.Bool
	var total atomic.Uint64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			last := uint64(0)
			for n := 0; !stop.Load(); n++ {
				seq := c.ReadBegin()
				var got [len(data)]uint64
				for i := range data {
					got[i] = data[i].Load()
					if n%1024 == i {
						runtime.Gosched()
					}
				}
				if c.ReadRetry(seq) {
					continue
				}
				for i, w := range got {
					if w != got[0] || w < last {
						e := fmt.Errorf("word %d is %d beside %d, after %d", i, w, got[0], last)
						failed.CompareAndSwap(nil, &e)
						stop.Store(true)
					}
				}
				last = got[0]
				total.Add(1)
			}
		})
	}
	end := time.Now().Add(limit)
	for n := uint64(1); !stop.Load(); n++ {
		c.Begin()
		for i := range data {
			data[i].Store(n)
			if n%1024 == uint64(i) {
				runtime.Gosched()
			}
		}
		c.End()
		if n%64 == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				stop.Store(true)
			}
		}
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return total.Load(), *e
	}
	return total.Load(), nil
}

func TestAllocs(t *testing.T) {
	var c Count
	if got := testing.AllocsPerRun(100, func() {
		c.Begin()
		c.End()
		if c.ReadRetry(c.ReadBegin()) {
			t.Error("no read")
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestInlined(t *testing.T) {
	archtest.Inlined(t, "(*Count).ReadBegin", "(*Count).ReadRetry")
}

const batch = 1000

// perOp reports the time of one operation out of a batch.
func perOp(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/op")
}

//go:noinline
func reads(c *Count, data *[4]atomic.Uint64) (sum uint64) {
	for range batch {
		seq := c.ReadBegin()
		got := data[0].Load() + data[1].Load() + data[2].Load() + data[3].Load()
		if !c.ReadRetry(seq) {
			sum += got
		}
	}
	return sum
}

//go:noinline
func sections(c *Count) {
	for range batch {
		c.Begin()
		c.End()
	}
}

func BenchmarkRead(b *testing.B) {
	var c Count
	var data [4]atomic.Uint64
	for b.Loop() {
		reads(&c, &data)
	}
	perOp(b)
}

func BenchmarkSection(b *testing.B) {
	var c Count
	for b.Loop() {
		sections(&c)
	}
	perOp(b)
}

func ExampleCount() {
	var c Count
	var width, height atomic.Uint64

	c.Begin()
	width.Store(3)
	height.Store(4)
	c.End()

	seq := c.ReadBegin()
	w, h := width.Load(), height.Load()
	fmt.Println(w, h, c.ReadRetry(seq))
	// Output: 3 4 false
}
