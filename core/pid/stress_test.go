package pid

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// crowd is a space that several goroutines change at once. tasks stands for the
// task-list lock.
type crowd struct {
	*fixture
	tasks  sync.Mutex
	ns     []*Namespace
	kept   []Ref
	stop   atomic.Bool
	failed atomic.Pointer[error]
	lists  atomic.Uint64
}

func (c *crowd) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	c.failed.CompareAndSwap(nil, &err)
	c.stop.Store(true)
}

func newCrowd(t testing.TB) *crowd {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	c := &crowd{fixture: f, ns: []*Namespace{f.ns}}
	for range 2 {
		in := f.child(c.ns[len(c.ns)-1])
		f.alloc(in, 0)
		if err := in.SetMax(2000); err != nil {
			t.Fatal(err)
		}
		c.ns = append(c.ns, in)
	}
	for range 50 {
		c.kept = append(c.kept, f.alloc(c.ns[2], 0))
		f.end(f.alloc(c.ns[2], 0)) // a hole
	}
	return c
}

// churn makes and ends processes and threads.
func (c *crowd) churn() {
	var mine []Ref
	for !c.stop.Load() {
		ns := c.ns[rand.IntN(len(c.ns))]
		leader := rand.IntN(2) == 0
		ref, err := c.s.Alloc(ns, &Request{Leader: leader})
		if errors.Is(err, unix.EAGAIN) {
			continue // readers that do not get to run keep the rest
		}
		if err != nil {
			c.fail("alloc: %w", err)
			return
		}
		tgid := uint32(1)
		if leader {
			tgid = 0
		}
		c.tasks.Lock()
		c.begin(ref, tgid)
		c.tasks.Unlock()
		if mine = append(mine, ref); len(mine) > 20 {
			i := rand.IntN(len(mine))
			c.release(mine[i])
			mine = append(mine[:i], mine[i+1:]...)
		}
	}
	for _, ref := range mine {
		c.release(ref)
	}
}

func (c *crowd) release(ref Ref) {
	c.tasks.Lock()
	var h table.Hot
	c.w.Get(ref.Slot, &h)
	if h.TID == h.TGID {
		c.s.Detach(ref.Slot, TGID)
	}
	h.TID = 0
	c.w.Put(ref.Slot, &h)
	last := c.s.Detach(ref.Slot, PID)
	c.tasks.Unlock()
	if last {
		c.s.Free([]uint32{ref.Slot})
	}
}

// list checks M1.8: each kept process once, in order, however often the listing is
// given up and resumed.
func (c *crowd) list() {
	var h table.Hot
	for !c.stop.Load() {
		ns := c.ns[rand.IntN(len(c.ns))]
		want := map[uint32]Ref{}
		for _, ref := range c.kept {
			want[c.s.Number(ref.Slot, ns)] = ref
		}
		last := uint32(0)
		for w := ns.Leaders(0); w.Next(&h); {
			if w.Number() <= last {
				c.fail("number %d came after %d", w.Number(), last)
				return
			}
			last = w.Number()
			if ref, ok := want[last]; ok && ref.Gen == h.Gen {
				delete(want, last)
			}
			if rand.IntN(8) == 0 {
				w.Stop()
				w = ns.Leaders(last + 1) // resumed
			}
		}
		if len(want) != 0 {
			c.fail("%d of %d kept processes were not listed in level %d", len(want), len(c.kept), ns.level)
			return
		}
		c.lists.Add(1)
	}
}

// hold checks M5.6: what is found in a section is the same life to its end.
func (c *crowd) hold() {
	r := c.s.Domain().Register("hold")
	defer r.Unregister()
	var h table.Hot
	var numbers [LevelsMax + 1]uint32
	for !c.stop.Load() {
		ns := c.ns[rand.IntN(len(c.ns))]
		nr := 1 + rand.Uint32N(2000)
		r.Enter()
		if ref, ok := ns.Ref(nr); ok {
			runtime.Gosched()
			if !c.w.Read(ref.Slot, &h) || h.Gen != ref.Gen && h.Gen != 0 {
				c.fail("slot %d of number %d: generation %d became %d inside a section", ref.Slot, nr, ref.Gen, h.Gen)
			}
			if got := c.s.Numbers(ref.Slot, ns, numbers[:0]); len(got) > 0 && got[0] != nr {
				c.fail("slot %d: number %d became %v inside a section", ref.Slot, nr, got)
			}
		}
		r.Exit()
	}
}

func (c *crowd) run(limit time.Duration, actors ...func()) error {
	var wg sync.WaitGroup
	for _, actor := range actors {
		wg.Go(actor)
	}
	timer := time.AfterFunc(limit, func() { c.stop.Store(true) })
	wg.Wait()
	timer.Stop()
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func TestStressSpace(t *testing.T) {
	c := newCrowd(t)
	limit := 500 * time.Millisecond
	if testing.Short() {
		limit = 80 * time.Millisecond
	}
	if err := c.run(limit, c.churn, c.churn, c.churn, c.churn, c.list, c.list, c.hold); err != nil {
		t.Fatal(err)
	}
	if c.lists.Load() == 0 {
		t.Error("no listing was made: the check saw nothing")
	}
	c.settle()
	for _, ns := range c.ns[1:] {
		if err := ns.Check(); err != nil {
			t.Error(err)
		}
	}
	if got, want := c.fixture.ns.numbers, uint32(len(c.kept)+3); got != want {
		t.Errorf("numbers in the root: got %d, want %d", got, want)
	}
	for _, ns := range c.ns {
		if got := ns.Stats().Violations; got != 0 {
			t.Errorf("M1.6: %d violations in level %d", got, ns.level)
		}
	}
}

// Broken orders that the same checks must catch: a leader before its tag (M1.5),
// a number freed while its task is attached, and a slot reused beside a reader.
func TestStressSpaceCatchesBusted(t *testing.T) {
	for name, write := range map[string]func(c *crowd){
		"the leader before its tag": func(c *crowd) {
			nr := c.s.Number(c.kept[7].Slot, c.ns[2])
			c.ns[2].child.ClearTag(uint64(nr), radix.Tree64SlabTGID)
			runtime.Gosched()
			c.ns[2].child.SetTag(uint64(nr), radix.Tree64SlabTGID)
		},
		"the number freed before its task is detached": func(c *crowd) {
			nr := uint64(c.s.Number(c.kept[7].Slot, c.ns[2]))
			v := c.ns[2].child.Withdraw(nr)
			runtime.Gosched()
			c.ns[2].child.Publish(nr, v)
			c.ns[2].child.SetTag(nr, radix.Tree64SlabTGID)
		},
		"a slot reused beside a reader": func(c *crowd) {
			ref, err := c.s.Alloc(c.ns[1], &Request{Numbers: []uint32{1000 + rand.Uint32N(3)}, Allowed: true, Leader: true})
			if err != nil {
				c.fail("alloc: %w", err)
				return
			}
			c.begin(ref, 0)
			runtime.Gosched()
			c.s.Detach(ref.Slot, TGID)
			c.s.Detach(ref.Slot, PID)
			c.s.FreeNow([]uint32{ref.Slot})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t)
			err := c.run(20*time.Second, c.list, c.list, c.hold, c.hold, func() {
				for !c.stop.Load() {
					write(c)
				}
			})
			if err == nil {
				t.Error("the broken writer was not caught")
			} else {
				t.Log(err)
			}
		})
	}
}
