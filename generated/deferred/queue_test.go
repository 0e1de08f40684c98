package deferred

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch/archtest"
)

// slowQueueDelay and bustedQueueDelay are called after a hand-over, before Push
// returns.
func slowQueueDelay()   { runtime.Gosched() }
func bustedQueueDelay() { slowQueueDelay() }

// work is an item that shows whether it was stored whole.
type work struct {
	writer, n, check uint64
}

func newWork(writer, n uint64) work { return work{writer, n, writer ^ n ^ 0x5afe} }

func TestQueueOrder(t *testing.T) {
	var q Queue[int]
	w := q.Writer()
	next, pushed := 0, 0
	drain := func() int {
		return q.Drain(func(items []int) {
			for _, item := range items {
				if item != next {
					t.Errorf("I3: got %d, want %d", item, next)
				}
				next++
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for pushed < 5*queueItems {
		for range r.IntN(3 * queueBatch) {
			if w.Push(pushed) {
				pushed++
			}
		}
		least := pushed - queueBatch + 1
		if r.IntN(2) == 0 {
			w.Flush()
			least = pushed
		}
		if r.IntN(4) != 0 {
			drain()
			if next < least {
				t.Fatalf("drained %d items of %d, want at least %d", next, pushed, least)
			}
		}
	}
	w.Flush()
	drain()
	if next != pushed {
		t.Errorf("drained %d items, want %d", next, pushed)
	}
	if n := drain(); n != 0 {
		t.Errorf("an empty queue: drained %d items", n)
	}
}

// What a batch holds is handed over when it is full, or by Flush.
func TestQueueBatch(t *testing.T) {
	var q Queue[int]
	w := q.Writer()
	count := func() int { return q.Drain(func([]int) {}) }
	for n := range queueBatch - 1 {
		w.Push(n)
	}
	if got := count(); got != 0 {
		t.Errorf("before the batch was full: got %d items, want none", got)
	}
	w.Push(0)
	if got := count(); got != queueBatch {
		t.Errorf("a full batch: got %d items, want %d", got, queueBatch)
	}
	w.Push(0)
	w.Flush()
	if got := count(); got != 1 {
		t.Errorf("after Flush: got %d items, want 1", got)
	}
}

// A ring that nobody drains is full at its bound, and usable again afterwards.
func TestQueueBound(t *testing.T) {
	var q Queue[*int]
	w := q.Writer()
	n := 0
	for w.Push(&n) {
		n++
	}
	if n != queueItems {
		t.Errorf("got %d items before the bound, want %d", n, queueItems)
	}
	if got := q.Drain(func([]*int) {}); got != queueItems {
		t.Errorf("drained %d items, want %d", got, queueItems)
	}
	for i, item := range w.items {
		if item != nil {
			t.Fatalf("item %d is still in the ring", i)
		}
	}
	if !w.Push(&n) {
		t.Error("Push after Drain: got false, want true")
	}
}

func TestQueueClose(t *testing.T) {
	var q Queue[int]
	a, b := q.Writer(), q.Writer()
	a.Push(1)
	a.Close()
	if len(q.list()) != 2 {
		t.Errorf("I4: got %d writers before Drain, want 2", len(q.list()))
	}
	if got := q.Drain(func([]int) {}); got != 1 || len(q.list()) != 1 || q.list()[0] != b {
		t.Errorf("I4: drained %d, %d writers left, want 1 and b", got, len(q.list()))
	}
	b.Push(2)
	b.Close()
	if got := q.Drain(func([]int) {}); got != 1 || len(q.list()) != 0 {
		t.Errorf("I4: drained %d, %d writers left, want 1 and none", got, len(q.list()))
	}
}

// pusher is a generated writer, so that one check runs over all.
type pusher interface {
	Push(item work) bool
	Flush()
	Close()
}

func TestStressQueue(t *testing.T) {
	var q Queue[work]
	var slow SlowQueue[work]
	for name, c := range map[string]struct {
		writer func() pusher
		drain  func(run func([]work)) int
	}{
		"queue": {func() pusher { return q.Writer() }, q.Drain},
		"slow":  {func() pusher { return slow.Writer() }, slow.Drain},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := stress(c.writer, c.drain, archtest.StressTime())
			if err != nil {
				t.Error(err)
			}
			if items == 0 {
				t.Error("no item came through: the check saw nothing")
			}
			t.Logf("%d items", items)
		})
	}
}

// A writer that hands a batch over before its last item is stored.
func TestStressQueueCatchesBusted(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector reports the busted variant itself")
	}
	archtest.MustCatch(t, func(limit time.Duration) bool {
		var q BustedQueue[work]
		items, err := stress(func() pusher { return q.Writer() }, q.Drain, limit)
		t.Logf("%d items: %v", items, err)
		return err != nil
	})
}

// stress lets writers come, push and go while one consumer checks that every item
// of each arrives once, whole and in order.
func stress(writer func() pusher, drain func(run func([]work)) int, limit time.Duration) (items uint64, err error) {
	const writers = 3
	var stop atomic.Bool
	var failed atomic.Pointer[error]
	var pushed [writers]atomic.Uint64
	var wg sync.WaitGroup
	for id := range uint64(writers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, id))
			w := writer()
			defer w.Close()
			for !stop.Load() {
				n := pushed[id].Load()
				if !w.Push(newWork(id, n)) {
					runtime.Gosched()
					continue
				}
				pushed[id].Store(n + 1)
				switch r.IntN(500) {
				case 0:
					w.Flush()
				case 1:
					runtime.Gosched()
				}
			}
		})
	}
	var next [writers]uint64
	check := func(batch []work) {
		for _, item := range batch {
			if item != newWork(item.writer, next[item.writer]) {
				e := fmt.Errorf("got %v, want number %d", item, next[item.writer])
				failed.CompareAndSwap(nil, &e)
				stop.Store(true)
				return
			}
			next[item.writer]++
		}
	}
	for end := time.Now().Add(limit); !stop.Load() && time.Now().Before(end); {
		if drain(check) == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
	drain(check)
	for id := range next {
		items += next[id]
		if want := pushed[id].Load(); failed.Load() == nil && next[id] != want {
			return items, fmt.Errorf("writer %d pushed %d items, %d came through", id, want, next[id])
		}
	}
	if e := failed.Load(); e != nil {
		return items, *e
	}
	return items, nil
}

func TestAllocs(t *testing.T) {
	var q Queue[work]
	w := q.Writer()
	seen := 0
	if got := testing.AllocsPerRun(100, func() {
		for n := range uint64(2 * queueBatch) {
			w.Push(work{n: n})
		}
		q.Drain(func(items []work) { seen += len(items) })
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

//go:noinline
func push(w *QueueWriter[uint64], n int) {
	for i := range uint64(n) {
		w.Push(i)
	}
}

// An item pushed by a writer and taken by the consumer, both on one goroutine, in
// rounds of 1,024 items.
func BenchmarkHandOver(b *testing.B) {
	var q Queue[uint64]
	w := q.Writer()
	sum := uint64(0)
	for b.Loop() {
		push(w, 1024)
		q.Drain(func(items []uint64) {
			for _, item := range items {
				sum += item
			}
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/op")
}

// The same to a consumer on another goroutine.
func BenchmarkHandOverAcross(b *testing.B) {
	var q Queue[uint64]
	w := q.Writer()
	var stop atomic.Bool
	done := make(chan uint64)
	go func() {
		sum := uint64(0)
		for !stop.Load() {
			if q.Drain(func(items []uint64) { sum += items[0] }) == 0 {
				runtime.Gosched()
			}
		}
		done <- sum
	}()
	for b.Loop() {
		for i := range uint64(1024) {
			for !w.Push(i) {
				runtime.Gosched()
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/op")
	stop.Store(true)
	<-done
}

func ExampleQueue() {
	var q Queue[string]
	w := q.Writer()
	w.Push("free pid 7")
	w.Push("flush its entries")
	w.Flush()

	q.Drain(func(items []string) { fmt.Println(items) })
	// Output: [free pid 7 flush its entries]
}
