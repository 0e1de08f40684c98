package radix

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slotOf is the only slot that a key ever gets, so that every reader can check
// what it sees.
func slotOf(key uint32) uint32 { return key ^ 0x5a5a5a5a | 1 }

// stress is a tree in which some keys stay, tagged, while a writer inserts, tags
// and deletes their neighbours as fast as it can.
type stress struct {
	s      shape
	mem    Tree22Memory
	tree   tree
	fixed  []uint32 // in order
	isKept map[uint32]bool
	churn  []uint32
	stop   atomic.Bool
	failed atomic.Pointer[error]
	walks  atomic.Uint64
}

func newStress(t *testing.T, s shape) *stress {
	st := &stress{s: s, mem: s.memory(), isKept: map[uint32]bool{}}
	st.tree = s.new(t, st.mem, nil)
	// Every third border key stays. Some pages hold one tagged key only, so
	// that their summary bit depends on it alone.
	for key := range s.keys {
		border := key%s.pageKeys() < 2 || key%64 == 63 || key == s.keys-1
		if s.keys > 1<<12 && (key/s.pageKeys())%97 != 0 || !border && key%5 != 0 {
			continue
		}
		if len(st.fixed)+len(st.churn) > 600 {
			break
		}
		if key%3 != 0 {
			st.churn = append(st.churn, key)
			continue
		}
		st.fixed = append(st.fixed, key)
		st.isKept[key] = true
		if err := st.tree.InsertNew(key, slotOf(key)); err != nil {
			t.Fatal(err)
		}
		for tag := range s.tags {
			st.tree.SetTag(key, tag)
		}
	}
	return st
}

func (st *stress) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	st.failed.CompareAndSwap(nil, &err)
	st.stop.Store(true)
}

// run lets the writer and two readers work until the limit or a failure.
func (st *stress) run(limit time.Duration, afterDelete func(key uint32)) error {
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { st.read(rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	r := rand.New(rand.NewPCG(8, 9))
	end := time.Now().Add(limit)
	for n := 0; !st.stop.Load(); n++ {
		st.write(r, afterDelete)
		if n%64 == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				st.stop.Store(true)
			}
		}
	}
	wg.Wait()
	if err := st.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (st *stress) write(r *rand.Rand, afterDelete func(key uint32)) {
	key := st.churn[r.IntN(len(st.churn))]
	if st.tree.Lookup(key) == 0 {
		if err := st.tree.InsertNew(key, slotOf(key)); err != nil {
			st.fail("InsertNew(%d): %v", key, err)
		}
		for tag := range st.s.tags {
			if r.IntN(2) == 0 {
				st.tree.SetTag(key, tag)
			}
		}
		return
	}
	if st.s.tags > 0 && r.IntN(2) == 0 {
		st.tree.ClearTag(key, r.IntN(st.s.tags))
		return
	}
	st.tree.Delete(key)
	if afterDelete != nil {
		afterDelete(key)
	}
}

func (st *stress) read(r *rand.Rand) {
	buf := make([]entry, 1+r.IntN(64))
	for !st.stop.Load() {
		st.walk("GangAll", buf, st.tree.GangAll)
		for tag := range st.s.tags {
			st.walk("Gang", buf, func(from uint32, buf []entry) (int, uint32, bool) { return st.tree.Gang(from, tag, buf) })
			st.walk("NextTagged", buf[:1], func(from uint32, buf []entry) (int, uint32, bool) {
				key, slot, ok := st.tree.NextTagged(from, tag)
				if !ok {
					return 0, 0, false
				}
				buf[0] = entry{key, slot}
				return 1, key + 1, true
			})
		}
		for range 64 {
			key := st.churn[r.IntN(len(st.churn))]
			if got := st.tree.Lookup(key); got != 0 && got != slotOf(key) {
				st.fail("Lookup(%d): got %#x, want 0 or %#x", key, got, slotOf(key))
			}
			key = st.fixed[r.IntN(len(st.fixed))]
			if got := st.tree.Lookup(key); got != slotOf(key) {
				st.fail("Lookup(%d) of a key that stays: got %#x, want %#x", key, got, slotOf(key))
			}
		}
		st.walks.Add(1)
		runtime.Gosched()
	}
}

// walk checks one whole walk: keys rise, each has its slot, and every key that
// stays is there exactly once.
func (st *stress) walk(name string, buf []entry, next func(from uint32, buf []entry) (int, uint32, bool)) {
	seen, low := 0, uint32(0)
	for from, more := uint32(0), true; more; {
		var n int
		n, from, more = next(from, buf)
		for _, e := range buf[:n] {
			if e.Key < low || e.Slot != slotOf(e.Key) {
				st.fail("%s: got key %d, slot %#x, want a key from %d on and slot %#x", name, e.Key, e.Slot, low, slotOf(e.Key))
				return
			}
			low = e.Key + 1
			if st.isKept[e.Key] {
				seen++
			}
		}
	}
	if seen != len(st.fixed) {
		st.fail("%s: got %d of %d keys that stay", name, seen, len(st.fixed))
	}
}

func TestStressTree(t *testing.T) {
	limit := 400 * time.Millisecond
	if testing.Short() {
		limit = 80 * time.Millisecond
	}
	eachShape(t, func(t *testing.T, s shape) {
		st := newStress(t, s)
		if err := st.run(limit, nil); err != nil {
			t.Error(err)
		}
		if st.walks.Load() == 0 {
			t.Error("no walk was completed: the check saw nothing")
		}
	})
}

// A writer that clears the summary bit with the page's other keys still tagged
// must be caught by the same check.
func TestStressTreeCatchesBusted(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		if s.tags == 0 {
			return
		}
		st := newStress(t, s)
		err := st.run(20*time.Second, func(key uint32) {
			page := key / s.pageKeys()
			word := &s.summary(st.mem, 0)[page/64]
			atomic.StoreUint64(word, atomic.LoadUint64(word)&^(1<<(page%64)))
			runtime.Gosched()
		})
		if err == nil {
			t.Error("a summary bit cleared too early was not caught")
		}
	})
}
