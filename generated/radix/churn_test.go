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

// valueOf is the only value that a key ever gets, so that every reader can check
// what it sees.
func valueOf(key uint64) uint64 { return key*0x9e3779b1&0xffffffff | 1 }

// churn is a tree in which some keys stay, with all tags, while writers insert, tag
// and delete their neighbours as fast as they can.
type churn struct {
	k      kind
	tree   anyTree
	kept   []uint64 // in order
	isKept map[uint64]bool
	moving []uint64
	stop   atomic.Bool
	failed atomic.Pointer[error]
	walks  atomic.Uint64
}

func newChurn(t *testing.T, k kind) *churn {
	c := &churn{k: k, tree: k.make(), isKept: map[uint64]bool{}}
	for i, key := range k.testKeys(80, 2) {
		// Few stay, none in every second word of bits, so that the bit of a
		// node often depends on one key alone, and on a word that is not the
		// one being cleared.
		if i%7 != 3 || key/64%2 == 1 {
			c.moving = append(c.moving, key)
			continue
		}
		c.kept = append(c.kept, key)
		c.isKept[key] = true
		if err := c.tree.InsertNew(key, valueOf(key)); err != nil {
			t.Fatal(err)
		}
		for tag := range k.tags {
			c.tree.SetTag(key, tag)
		}
	}
	return c
}

func (c *churn) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	c.failed.CompareAndSwap(nil, &err)
	c.stop.Store(true)
}

// run lets writers and readers work until the limit or a failure. Where writers
// are locked there are two, each with keys of its own.
func (c *churn) run(limit time.Duration) error {
	writers := 1
	if c.k.locked {
		writers = 2
	}
	end := time.Now().Add(limit)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { c.write(rand.New(rand.NewPCG(8, uint64(i))), i, writers, end) })
	}
	for i := range 2 {
		wg.Go(func() { c.read(rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	wg.Wait()
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return c.tree.Check()
}

func (c *churn) write(r *rand.Rand, first, step int, end time.Time) {
	own := len(c.moving) / step
	for n := 0; !c.stop.Load(); n++ {
		key := c.moving[first+r.IntN(own)*step]
		switch present := c.tree.Lookup(key) != 0; {
		case !present:
			if err := c.tree.InsertNew(key, valueOf(key)); err != nil {
				c.fail("InsertNew(%d): %v", key, err)
			}
			for tag := range c.k.tags {
				if r.IntN(2) == 0 {
					c.tree.SetTag(key, tag)
				}
			}
		case c.k.tags > 0 && r.IntN(2) == 0:
			c.tree.ClearTag(key, r.IntN(c.k.tags))
		default:
			c.tree.Delete(key)
		}
		if n%64 == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				c.stop.Store(true)
			}
		}
	}
}

func (c *churn) read(r *rand.Rand) {
	buf := make([]item, 1+r.IntN(64))
	for !c.stop.Load() {
		c.walk("GangAll", buf, c.tree.GangAll)
		for tag := range c.k.tags {
			c.walk("Gang", buf, func(from uint64, buf []item) (int, uint64, bool) { return c.tree.Gang(from, tag, buf) })
			c.walk("NextTagged", buf[:1], func(from uint64, buf []item) (int, uint64, bool) {
				key, value, ok := c.tree.NextTagged(from, tag)
				buf[0] = item{key, value}
				if !ok {
					return 0, 0, false
				}
				return 1, key + 1, key < c.k.keyMax
			})
		}
		for range 64 {
			key := c.moving[r.IntN(len(c.moving))]
			if got := c.tree.Lookup(key); got != 0 && got != valueOf(key) {
				c.fail("Lookup(%d): got %#x, want 0 or %#x", key, got, valueOf(key))
			}
			key = c.kept[r.IntN(len(c.kept))]
			if got := c.tree.Lookup(key); got != valueOf(key) {
				c.fail("Lookup(%d) of a key that stays: got %#x, want %#x", key, got, valueOf(key))
			}
		}
		c.walks.Add(1)
		runtime.Gosched()
	}
}

// walk checks one whole walk: keys rise, each has its value, and every key that
// stays is there exactly once.
func (c *churn) walk(name string, buf []item, next func(from uint64, buf []item) (int, uint64, bool)) {
	seen, low := 0, uint64(0)
	for from, more := uint64(0), true; more; {
		var n int
		n, from, more = next(from, buf)
		for _, e := range buf[:n] {
			if e.key < low || e.value != valueOf(e.key) {
				c.fail("%s: got key %d, value %#x, want a key from %d on and value %#x", name, e.key, e.value, low, valueOf(e.key))
				return
			}
			low = e.key + 1
			if c.isKept[e.key] {
				seen++
			}
		}
	}
	if seen != len(c.kept) {
		c.fail("%s: got %d of %d keys that stay", name, seen, len(c.kept))
	}
}

// stressLimit is how long a stress test of one kind takes.
func stressLimit() time.Duration {
	if testing.Short() {
		return 40 * time.Millisecond
	}
	return 150 * time.Millisecond
}

func TestStressWalk(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		c := newChurn(t, k)
		if err := c.run(stressLimit()); err != nil {
			t.Error(err)
		}
		if c.walks.Load() == 0 {
			t.Error("no walk was completed: the check saw nothing")
		}
	})
}

// growth grows trees while readers walk over the tagged keys that were there
// before: none may be missed.
func growth(k kind, limit time.Duration) error {
	var current atomic.Pointer[anyTree]
	var failed atomic.Pointer[error]
	var stop atomic.Bool
	fresh := func() anyTree {
		tree := k.make()
		for key := range uint64(3) {
			if err := tree.InsertNew(key, valueOf(key)); err != nil {
				panic(err)
			}
			for tag := range k.tags {
				tree.SetTag(key, tag)
			}
		}
		return tree
	}
	tree := fresh()
	current.Store(&tree)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				tree := *current.Load()
				for tag := -1; tag < k.tags; tag++ {
					if got := walkAll(tree, tag, 8); len(got) < 3 || got[2] != (item{2, valueOf(2)}) {
						err := fmt.Errorf("walk over tag %d of a growing tree: got %v, want keys 0, 1, 2 first", tag, got)
						failed.CompareAndSwap(nil, &err)
						stop.Store(true)
					}
				}
				if got := tree.Lookup(1); got != valueOf(1) {
					err := fmt.Errorf("Lookup(1) in a growing tree: got %d", got)
					failed.CompareAndSwap(nil, &err)
					stop.Store(true)
				}
			}
		})
	}
	for end := time.Now().Add(limit); !stop.Load() && time.Now().Before(end); {
		tree := fresh()
		current.Store(&tree)
		for _, key := range k.ones()[2:] {
			if _, err := tree.Insert(key, valueOf(key)); err != nil {
				panic(err)
			}
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func TestStressGrowth(t *testing.T) {
	for _, k := range heapKinds {
		if k.grows {
			t.Run(k.name, func(t *testing.T) {
				if err := growth(k, stressLimit()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// tagOrder fills and empties a tree in turn. While it fills, a key that is seen
// tagged must be present; while it empties, a key that is seen absent must have no
// tag left.
func tagOrder(k kind, limit time.Duration) error {
	tree := k.make()
	keys := k.testKeys(60, 2)
	var phase atomic.Uint64 // odd while the tree is being emptied
	var failed atomic.Pointer[error]
	var stop atomic.Bool
	fail := func(format string, args ...any) {
		err := fmt.Errorf(format, args...)
		failed.CompareAndSwap(nil, &err)
		stop.Store(true)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				key := keys[n%len(keys)]
				before := phase.Load()
				if before%2 == 0 {
					if tree.Tagged(key, 0) && tree.Lookup(key) == 0 && phase.Load() == before {
						fail("key %d has its tag before its value", key)
					}
				} else if tree.Lookup(key) == 0 && tree.Tagged(key, 0) && phase.Load() == before {
					fail("key %d has its tag after its value went", key)
				}
				if n%1024 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	for end := time.Now().Add(limit); !stop.Load() && time.Now().Before(end); {
		for _, key := range keys {
			if err := tree.InsertNew(key, valueOf(key)); err != nil {
				fail("InsertNew(%d): %v", key, err)
			}
			tree.SetTag(key, 0)
		}
		phase.Add(1)
		for _, key := range keys {
			tree.Delete(key)
		}
		phase.Add(1)
	}
	stop.Store(true)
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func TestStressTagOrder(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		if k.tags == 0 {
			return
		}
		if err := tagOrder(k, stressLimit()); err != nil {
			t.Error(err)
		}
	})
}
