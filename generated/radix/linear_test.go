package radix

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// operation is one call on one key, between two readings of a clock that all
// goroutines share. A write sets value, 0 for a deletion, and got the value before;
// a read got value.
type operation struct {
	key        uint64
	write      bool
	value, old uint64
	call, ret  uint64
}

// history records the operations on a tree.
type history struct {
	tree  anyTree
	clock atomic.Uint64
	mu    sync.Mutex
	ops   []operation
}

func (h *history) add(ops []operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, ops...)
}

// write does n writes on keys that nobody else writes.
func (h *history) write(r *rand.Rand, keys []uint64, n int) {
	var ops []operation
	for i := range n {
		op := operation{key: keys[r.IntN(len(keys))], write: true, call: h.clock.Add(1)}
		if r.IntN(3) == 0 {
			op.old = h.tree.Delete(op.key)
		} else {
			op.value = uint64(i) + 1 // new for this key
			op.old, _ = h.tree.Insert(op.key, op.value)
		}
		op.ret = h.clock.Add(1)
		ops = append(ops, op)
		if i%8 == 0 {
			runtime.Gosched()
		}
	}
	h.add(ops)
}

func (h *history) read(r *rand.Rand, keys []uint64, n int) {
	var ops []operation
	for i := range n {
		op := operation{key: keys[r.IntN(len(keys))], call: h.clock.Add(1)}
		op.value = h.tree.Lookup(op.key)
		op.ret = h.clock.Add(1)
		ops = append(ops, op)
		if i%8 == 0 {
			runtime.Gosched()
		}
	}
	h.add(ops)
}

// linearizable checks the operations of one key, whose writes do not overlap each
// other. Such a history is linearizable if every read can be given a write that
// had begun before the read returned and was not followed by one that had returned
// before the read was called, so that reads which follow each other are given
// writes that do. The earliest write that fits is the right choice for each.
func linearizable(ops []operation) error {
	writes := []operation{{write: true}} // the key is absent at first
	var reads []operation
	slices.SortFunc(ops, func(a, b operation) int { return cmp.Compare(a.ret, b.ret) })
	for _, op := range ops {
		if !op.write {
			reads = append(reads, op)
			continue
		}
		if before := writes[len(writes)-1]; before.value != op.old {
			return fmt.Errorf("write %+v got %d, want %d", op, op.old, before.value)
		}
		writes = append(writes, op)
	}
	given := make([]int, len(reads)) // to each read, in the order of their returns
	for i, read := range reads {
		low := 0
		for j := range i {
			if reads[j].ret < read.call {
				low = max(low, given[j])
			}
		}
		for low+1 < len(writes) && writes[low+1].ret < read.call {
			low++
		}
		for low < len(writes) && writes[low].call < read.ret && writes[low].value != read.value {
			low++
		}
		if low == len(writes) || writes[low].call > read.ret {
			return fmt.Errorf("read %+v fits no write", read)
		}
		given[i] = low
	}
	return nil
}

func checkHistory(ops []operation) error {
	byKey := map[uint64][]operation{}
	for _, op := range ops {
		byKey[op.key] = append(byKey[op.key], op)
	}
	for _, ops := range byKey {
		if err := linearizable(ops); err != nil {
			return err
		}
	}
	return nil
}

// Point operations are linearizable, also across growth and nodes that go and come
// back. Walks are not, and promise less: TestStressWalk.
func TestLinearizable(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		rounds, calls := 20, 120
		if testing.Short() {
			rounds = 3
		}
		for round := range rounds {
			h := &history{tree: k.make()}
			all := k.testKeys(4, 1)
			r := rand.New(rand.NewPCG(uint64(round), k.keyMax))
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			keys := all[:min(len(all), 6)]
			var wg sync.WaitGroup
			if k.locked {
				wg.Go(func() { h.write(rand.New(rand.NewPCG(1, uint64(round))), keys[:3], calls) })
				wg.Go(func() { h.write(rand.New(rand.NewPCG(2, uint64(round))), keys[3:], calls) })
			} else {
				wg.Go(func() { h.write(rand.New(rand.NewPCG(1, uint64(round))), keys, calls) })
			}
			for i := range 3 {
				wg.Go(func() { h.read(rand.New(rand.NewPCG(uint64(i+3), uint64(round))), keys, calls) })
			}
			wg.Wait()
			if err := checkHistory(h.ops); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	})
}

// The checker itself: what it must refuse.
func TestLinearizableRefuses(t *testing.T) {
	w := func(value, old, call, ret uint64) operation { return operation{1, true, value, old, call, ret} }
	r := func(value, call, ret uint64) operation { return operation{1, false, value, 0, call, ret} }
	for _, c := range []struct {
		name string
		ops  []operation
		ok   bool
	}{
		{"overlapping write", []operation{w(5, 0, 1, 4), r(0, 2, 3), r(5, 2, 3)}, true},
		{"stale", []operation{w(5, 0, 1, 2), r(0, 3, 4)}, false},
		{"from the future", []operation{r(5, 1, 2), w(5, 0, 3, 4)}, false},
		{"new, then old", []operation{w(5, 0, 1, 9), r(5, 2, 3), r(0, 4, 5)}, false},
		{"new and old at once", []operation{w(5, 0, 1, 9), r(5, 2, 6), r(0, 3, 5)}, true},
		{"never written", []operation{w(5, 0, 1, 2), r(6, 3, 4)}, false},
		{"wrong old value", []operation{w(5, 0, 1, 2), w(6, 0, 3, 4)}, false},
		{"absent again", []operation{w(5, 0, 1, 2), w(0, 5, 3, 4), r(0, 5, 6)}, true},
	} {
		if err := linearizable(c.ops); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want linearizable %v", c.name, err, c.ok)
		}
	}
}
