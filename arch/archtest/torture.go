package archtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Reader is a handle of a read-side flavour under torture.
type Reader interface {
	Enter() (token uint64)
	Exit(token uint64)
	Unregister()
}

// Torture moves objects down an ageing pipe, one step for each grace period, while
// readers check that they never hold one that has aged. It follows rcutorture of
// Linux and rcutorture.h of liburcu.
type Torture struct {
	Register    func(label string) Reader
	Synchronize func(ctx context.Context) error

	// A lean run has one reader that does nothing but its sections, on a processor
	// of its own, which makes reordering most likely. Otherwise there are three, which are delayed, yield and collect garbage inside sections,
	// and come and go, while GOMAXPROCS changes.
	Lean bool
	// Inside, if set, is called by readers inside sections, which may block.
	Inside func(r *rand.Rand)

	objects [pipeLen + 2]object
	current atomic.Int64
	stop    atomic.Bool
	reads   atomic.Uint64
	periods uint64
	ages    [pipeLen + 2]atomic.Uint64
	failed  atomic.Pointer[error]
}

const (
	pipeLen = 10 // grace periods until an object is used again
	alive   = 0x5afe5afe5afe5afe
)

// object is what readers find. Atomic; stored by the writer.
type object struct {
	age    atomic.Int64 // 0: current, 1: unlinked, then a step for each grace period
	canary atomic.Uint64
	_      [112]byte
}

// Report is what a run has done.
type Report struct {
	Reads, Periods uint64
	Ages           []uint64 // how often readers saw an object of each age
}

// Run tortures for the limit, or until an error.
func (t *Torture) Run(limit time.Duration) (Report, error) {
	for i := range t.objects {
		t.objects[i].age.Store(pipeLen)
	}
	t.publish(0)
	var wg sync.WaitGroup
	readers := 3
	if t.Lean {
		readers = 1
	}
	for i := range readers {
		wg.Go(func() {
			if t.Lean {
				Pin(0)
			}
			t.read(rand.New(rand.NewPCG(1, uint64(i))))
		})
	}
	if !t.Lean {
		procs := runtime.GOMAXPROCS(0)
		defer runtime.GOMAXPROCS(procs)
		wg.Go(func() { t.disturb(procs) })
	}
	wg.Go(func() {
		if t.Lean {
			Pin(1)
		}
		t.write(limit)
		t.stop.Store(true)
	})
	wg.Wait()
	report := Report{Reads: t.reads.Load(), Periods: t.periods}
	for i := range t.ages {
		report.Ages = append(report.Ages, t.ages[i].Load())
	}
	if err := t.failed.Load(); err != nil {
		return report, *err
	}
	return report, nil
}

func (t *Torture) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	t.failed.CompareAndSwap(nil, &err)
	t.stop.Store(true)
}

func (t *Torture) publish(i int) {
	o := &t.objects[i]
	o.canary.Store(alive)
	o.age.Store(0)
	t.current.Store(int64(i))
}

func (t *Torture) write(limit time.Duration) {
	ctx := context.Background()
	end := time.Now().Add(limit)
	for n := uint64(1); !t.stop.Load(); n++ {
		if n%16 == 0 && time.Now().After(end) {
			return
		}
		next := t.free()
		if next < 0 {
			t.fail("no object left after %d grace periods", t.periods)
			return
		}
		old := t.current.Load()
		t.publish(next)
		t.objects[old].age.Store(1)
		if err := t.Synchronize(ctx); err != nil {
			t.fail("Synchronize: %w", err)
			return
		}
		t.periods++
		t.age()
		if n%64 == 0 {
			runtime.Gosched()
		}
	}
}

func (t *Torture) free() int {
	for i := range t.objects {
		if t.objects[i].age.Load() == pipeLen {
			return i
		}
	}
	return -1
}

// age moves every object on the pipe one step on.
func (t *Torture) age() {
	for i := range t.objects {
		o := &t.objects[i]
		if age := o.age.Load(); age > 0 && age < pipeLen {
			if age == 1 {
				o.canary.Store(^uint64(alive))
			}
			o.age.Store(age + 1)
		}
	}
}

func (t *Torture) read(r *rand.Rand) {
	handle := t.Register(fmt.Sprintf("reader %p", r))
	defer func() { handle.Unregister() }()
	for n := uint64(0); !t.stop.Load(); n++ {
		token := handle.Enter()
		o := &t.objects[t.current.Load()]
		first := o.canary.Load()
		if t.Lean {
			t.idle(50) // until an object found too early has aged
		} else {
			t.linger(r, n)
		}
		last := o.canary.Load()
		age := o.age.Load()
		if t.Inside != nil {
			t.Inside(r)
			age = max(age, o.age.Load())
		}
		handle.Exit(token)
		if first != alive || last != alive || age > 1 {
			t.fail("a reader held an object of age %d with canary %#x, then %#x", age, first, last)
		}
		t.ages[age].Add(1)
		t.reads.Add(1)
		if !t.Lean && n%1024 == 1023 {
			handle.Unregister()
			runtime.Gosched()
			handle = t.Register(fmt.Sprintf("reader %p after %d", r, n))
		}
	}
}

// linger stays inside a section, most often for no time.
func (t *Torture) linger(r *rand.Rand, n uint64) {
	switch k := r.IntN(2000); {
	case k == 0:
		time.Sleep(200 * time.Microsecond)
	case k == 1 && n%8 == 0:
		runtime.GC()
	case k < 20:
		runtime.Gosched()
	case k < 200:
		t.idle(r.IntN(200))
	}
}

// idle loads n times.
func (t *Torture) idle(n int) {
	for range n {
		t.current.Load()
	}
}

// disturb changes the number of processors that goroutines run on.
func (t *Torture) disturb(procs int) {
	for n := 0; !t.stop.Load(); n++ {
		runtime.GOMAXPROCS(1 + n%(procs+1))
		time.Sleep(5 * time.Millisecond)
	}
}
