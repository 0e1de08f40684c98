package structures

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/google/btree"
	"github.com/kpidd/kpidd/generated/radix"
	"github.com/puzpuzpuz/xsync/v3"
)

// keys are what a loop asks for: with n records resident on the even keys below
// 2n, hits are even keys, misses odd ones. n is a power of two.
type keys struct {
	mask uint32 // n-1
	odd  uint32 // 1 for misses
}

// at returns the i-th key, spread over all.
func (k keys) at(i uint64) uint32 { return 2*(uint32(mix(i))&k.mask) | k.odd }

// own returns the i-th odd key that only this thread changes.
func (k keys) own(thread int, i uint64) uint32 {
	return 4*(uint32(mix(i))&(k.mask>>1)) + 1 + 2*uint32(thread)
}

func mix(i uint64) uint64 {
	i *= 0x9e3779b97f4a7c15
	return i ^ i>>32
}

// record is a value of 64 bytes. Every 100th is tagged.
type record struct {
	tagged bool
	_      [63]byte
}

func newRecord(i int) *record { return &record{tagged: i%100 == 0} }

// table is a map from keys to records under test. The loops are written out for
// each: calls through an interface or a function value would be measured along.
type table struct {
	lookup func(k keys, ops int, base uint64) (found int)
	change func(k keys, thread, ops int, base uint64) (done int) // inserts and deletes
	walk   func(ops int) (tagged int)                            // over all that are tagged
}

// fill calls insert for the n resident records.
func fill(n int, insert func(key uint32, r *record)) {
	for i := range n {
		insert(2*uint32(i), newRecord(i))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Tree22GC, kpidd's.

func newTree22GC(n int) table {
	t := radix.NewTree22GC[record]()
	fill(n, func(key uint32, r *record) {
		must(t.InsertNew(key, r))
		if r.tagged {
			t.SetTag(key, radix.Tree22GCTGID)
		}
	})
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupTree22GC(t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				must(t.InsertNew(key, value))
				t.SetTag(key, radix.Tree22GCTGID)
				t.Delete(key)
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			var buf [64]radix.Tree22GCEntry[record]
			for range ops {
				for from, more := uint32(0), true; more; {
					var n int
					n, from, more = t.Gang(from, radix.Tree22GCTGID, buf[:])
					tagged += n
				}
			}
			return tagged
		},
	}
}

//go:noinline
func lookupTree22GC(t *radix.Tree22GC[record], k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if t.Lookup(k.at(base+i)) != nil {
			found++
		}
	}
	return found
}

// Tree22, kpidd's in a mapping.

func newTree22(n int) table {
	t, err := radix.NewTree22(radix.Tree22Memory{
		Dir:   words(radix.Tree22DirBytes),
		Tags:  words(radix.Tree22TagBytes),
		Slots: words(radix.Tree22SlotBytes),
	}, nil)
	must(err)
	fill(n, func(key uint32, r *record) {
		must(t.InsertNew(key, key/2+1))
		if r.tagged {
			t.SetTag(key, radix.Tree22TGID)
		}
	})
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupTree22(t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				must(t.InsertNew(key, 1))
				t.SetTag(key, radix.Tree22TGID)
				t.Delete(key)
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			var buf [64]radix.Tree22Entry
			for range ops {
				for from, more := uint32(0), true; more; {
					var n int
					n, from, more = t.Gang(from, radix.Tree22TGID, buf[:])
					tagged += n
				}
			}
			return tagged
		},
	}
}

//go:noinline
func lookupTree22(t *radix.Tree22, k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if t.Lookup(k.at(base+i)) != 0 {
			found++
		}
	}
	return found
}

// Tree22Slab, kpidd's for records in a slab.

func newTree22Slab(n int) table {
	t := radix.NewTree22Slab()
	fill(n, func(key uint32, r *record) { must(t.InsertNew(key, uint64(key)+1)) })
	return table{lookup: func(k keys, ops int, base uint64) int { return lookupTree22Slab(t, k, ops, base) }}
}

//go:noinline
func lookupTree22Slab(t *radix.Tree22Slab, k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if t.Lookup(k.at(base+i)) != 0 {
			found++
		}
	}
	return found
}

// Tree64, kpidd's of dynamic height.

func newTree64(n int) table {
	t := radix.NewTree64[record]()
	fill(n, func(key uint32, r *record) {
		must(t.InsertNew(uint64(key), r))
		if r.tagged {
			t.SetTag(uint64(key), radix.Tree64TGID)
		}
	})
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupTree64(t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := uint64(k.own(thread, base+i))
				must(t.InsertNew(key, value))
				t.SetTag(key, radix.Tree64TGID)
				t.Delete(key)
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			var buf [64]radix.Tree64Entry[record]
			for range ops {
				for from, more := uint64(0), true; more; {
					var n int
					n, from, more = t.Gang(from, radix.Tree64TGID, buf[:])
					tagged += n
				}
			}
			return tagged
		},
	}
}

//go:noinline
func lookupTree64(t *radix.Tree64[record], k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if t.Lookup(uint64(k.at(base+i))) != nil {
			found++
		}
	}
	return found
}

// genericTree is the shape of Tree22GC in generic Go.

type genericTree[K ~uint8 | ~uint16 | ~uint32 | ~uint64, V any] struct {
	root [1 << 11]atomic.Pointer[[1 << 11]atomic.Pointer[V]]
}

func (t *genericTree[K, V]) Lookup(key K) *V {
	if uint64(key) >= 1<<22 {
		return nil
	}
	leaf := t.root[uint64(key)>>11].Load()
	if leaf == nil {
		return nil
	}
	return leaf[uint64(key)&(1<<11-1)].Load()
}

func (t *genericTree[K, V]) Insert(key K, value *V) {
	leaf := t.root[uint64(key)>>11].Load()
	if leaf == nil {
		leaf = new([1 << 11]atomic.Pointer[V])
		t.root[uint64(key)>>11].Store(leaf)
	}
	leaf[uint64(key)&(1<<11-1)].Store(value)
}

func newGeneric(n int) table {
	t := new(genericTree[uint32, record])
	fill(n, t.Insert)
	return table{lookup: func(k keys, ops int, base uint64) int { return lookupGeneric(t, k, ops, base) }}
}

//go:noinline
func lookupGeneric[K ~uint32](t *genericTree[K, record], k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if t.Lookup(K(k.at(base+i))) != nil {
			found++
		}
	}
	return found
}

// xsync.MapOf

func newXsync(n int) table {
	t := xsync.NewMapOf[uint32, *record]()
	fill(n, t.Store)
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupXsync(t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				t.Store(key, value)
				t.Delete(key)
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			for range ops {
				t.Range(func(_ uint32, r *record) bool {
					if r.tagged {
						tagged++
					}
					return true
				})
			}
			return tagged
		},
	}
}

//go:noinline
func lookupXsync(t *xsync.MapOf[uint32, *record], k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if _, ok := t.Load(k.at(base + i)); ok {
			found++
		}
	}
	return found
}

// sync.Map

func newSyncMap(n int) table {
	t := new(sync.Map)
	fill(n, func(key uint32, r *record) { t.Store(key, r) })
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupSyncMap(t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				t.Store(key, value)
				t.Delete(key)
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			for range ops {
				t.Range(func(_, r any) bool {
					if r.(*record).tagged {
						tagged++
					}
					return true
				})
			}
			return tagged
		},
	}
}

//go:noinline
func lookupSyncMap(t *sync.Map, k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if _, ok := t.Load(k.at(base + i)); ok {
			found++
		}
	}
	return found
}

// map with sync.RWMutex

func newRWMutex(n int) table {
	var mu sync.RWMutex
	t := make(map[uint32]*record, n)
	fill(n, func(key uint32, r *record) { t[key] = r })
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupRWMutex(&mu, t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				mu.Lock()
				t[key] = value
				mu.Unlock()
				mu.Lock()
				delete(t, key)
				mu.Unlock()
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			for range ops {
				mu.RLock()
				for _, r := range t {
					if r.tagged {
						tagged++
					}
				}
				mu.RUnlock()
			}
			return tagged
		},
	}
}

//go:noinline
func lookupRWMutex(mu *sync.RWMutex, t map[uint32]*record, k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		mu.RLock()
		_, ok := t[k.at(base+i)]
		mu.RUnlock()
		if ok {
			found++
		}
	}
	return found
}

// map with xsync.RBMutex

func newRBMutex(n int) table {
	mu := xsync.NewRBMutex()
	t := make(map[uint32]*record, n)
	fill(n, func(key uint32, r *record) { t[key] = r })
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupRBMutex(mu, t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				mu.Lock()
				t[key] = value
				mu.Unlock()
				mu.Lock()
				delete(t, key)
				mu.Unlock()
			}
			return ops
		},
	}
}

//go:noinline
func lookupRBMutex(mu *xsync.RBMutex, t map[uint32]*record, k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		token := mu.RLock()
		_, ok := t[k.at(base+i)]
		mu.RUnlock(token)
		if ok {
			found++
		}
	}
	return found
}

// google/btree, without a lock

type entry struct {
	key    uint32
	record *record
}

type tree = btree.BTreeG[entry]

func lessEntry(a, b entry) bool { return a.key < b.key }

func newBTree(n int) table {
	t := btree.NewG(32, lessEntry)
	fill(n, func(key uint32, r *record) { t.ReplaceOrInsert(entry{key, r}) })
	value := newRecord(0)
	return table{
		lookup: func(k keys, ops int, base uint64) int { return lookupBTree(t, k, ops, base) },
		change: func(k keys, thread, ops int, base uint64) int {
			for i := range uint64(ops) {
				key := k.own(thread, base+i)
				t.ReplaceOrInsert(entry{key, value})
				t.Delete(entry{key: key})
			}
			return ops
		},
		walk: func(ops int) (tagged int) {
			for range ops {
				t.Ascend(func(e entry) bool {
					if e.record.tagged {
						tagged++
					}
					return true
				})
			}
			return tagged
		},
	}
}

//go:noinline
func lookupBTree(t *tree, k keys, ops int, base uint64) (found int) {
	for i := range uint64(ops) {
		if _, ok := t.Get(entry{key: k.at(base + i)}); ok {
			found++
		}
	}
	return found
}

// newTaggedBTree is a second B-tree, beside that of all, which holds the tagged
// entries alone.
func newTaggedBTree(n int) table {
	t := btree.NewG(32, lessEntry)
	fill(n, func(key uint32, r *record) {
		if r.tagged {
			t.ReplaceOrInsert(entry{key, r})
		}
	})
	return table{walk: func(ops int) (tagged int) {
		for range ops {
			t.Ascend(func(entry) bool {
				tagged++
				return true
			})
		}
		return tagged
	}}
}

// newTable is a way to make a table of n records.
type newTable struct {
	name string
	make func(n int) table
}

var (
	tree22GC    = newTable{"kpidd.Tree22GC", newTree22GC}
	tree22      = newTable{"kpidd.Tree22", newTree22}
	tree22Slab  = newTable{"kpidd.Tree22Slab", newTree22Slab}
	tree64      = newTable{"kpidd.Tree64", newTree64}
	generic     = newTable{"generic", newGeneric}
	xsyncMap    = newTable{"xsync.MapOf", newXsync}
	syncMap     = newTable{"sync.Map", newSyncMap}
	rwMutexMap  = newTable{"map+RWMutex", newRWMutex}
	rbMutexMap  = newTable{"map+RBMutex", newRBMutex}
	googleBTree = newTable{"btree", newBTree}
	taggedBTree = newTable{"btree-of-tagged", newTaggedBTree}
)

// words returns zeroed memory for a mapped tree, aligned to 8 bytes.
func words(bytes int) []byte {
	w := make([]uint64, (bytes+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), bytes)
}
