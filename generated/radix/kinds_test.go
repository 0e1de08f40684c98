package radix

import (
	"iter"
	"math"
	"slices"
	"testing"
)

// item is an entry of any kind of tree; value 0 means absent.
type item struct{ key, value uint64 }

// anyTree is a tree of any kind, with wide keys and values, so that one suite runs
// over all. Methods that a kind has not are not called.
type anyTree interface {
	Lookup(key uint64) uint64
	Insert(key, value uint64) (old uint64, err error)
	InsertNew(key, value uint64) error
	Delete(key uint64) (old uint64)
	GangAll(from uint64, buf []item) (n int, next uint64, more bool)

	SetTag(key uint64, tag int)
	ClearTag(key uint64, tag int)
	Tagged(key uint64, tag int) bool
	NextTagged(from uint64, tag int) (key, value uint64, ok bool)
	Gang(from uint64, tag int, buf []item) (n int, next uint64, more bool)
	All(tag int) iter.Seq2[uint64, uint64] // tag is ignored where there are none

	Alloc(value uint64) (id uint64, err error)
	AllocRange(min, max, value uint64) (id uint64, err error)
	AllocCyclic(min, max, value uint64) (id uint64, err error)
	AllocAt(id, value uint64) error
	Reserve(min, max uint64) (id uint64, err error)
	ReserveCyclic(min, max uint64) (id uint64, err error)
	ReserveAt(id uint64) error
	Publish(id, value uint64)
	Cancel(id uint64)
	Withdraw(id uint64) (old uint64)
	Free(id uint64) bool
	IsFree(id uint64) bool
	Cursor() uint64

	Check() error
}

type key interface {
	uint8 | uint16 | uint32 | uint64
}

// Method sets of the generated types.
type (
	pointTree[K key, V any] interface {
		Lookup(key K) V
		Insert(key K, value V) (old V, err error)
		InsertNew(key K, value V) error
		Delete(key K) (old V)
	}
	walkTree[K key, V, E any] interface {
		GangAll(from K, buf []E) (n int, next K, more bool)
	}
	tagTree[K key, V any, T ~int, E any] interface {
		SetTag(key K, tag T)
		ClearTag(key K, tag T)
		Tagged(key K, tag T) bool
		NextTagged(from K, tag T) (key K, value V, ok bool)
		Gang(from K, tag T, buf []E) (n int, next K, more bool)
		All(tag T) iter.Seq2[K, V]
	}
	idTree[K key, V any] interface {
		Alloc(value V) (id K, err error)
		AllocRange(min, max K, value V) (id K, err error)
		AllocCyclic(min, max K, value V) (id K, err error)
		AllocAt(id K, value V) error
		Reserve(min, max K) (id K, err error)
		ReserveCyclic(min, max K) (id K, err error)
		ReserveAt(id K) error
		Publish(id K, value V)
		Cancel(id K)
		Withdraw(id K) (old V)
		Free(id K) bool
		IsFree(id K) bool
		Cursor() K
	}
)

// adapter makes an anyTree of a generated type. tags, ids and all are nil where the
// type has none; to and from convert values, item an entry.
type adapter[K key, V any, T ~int, E any] struct {
	point pointTree[K, V]
	walk  walkTree[K, V, E]
	tags  tagTree[K, V, T, E]
	ids   idTree[K, V]
	all   func() iter.Seq2[K, V] // of a type without tags
	check func() error
	to    func(uint64) V
	from  func(V) uint64
	item  func(E) item
}

func (a adapter[K, V, T, E]) Lookup(key uint64) uint64 { return a.from(a.point.Lookup(K(key))) }
func (a adapter[K, V, T, E]) Insert(key, value uint64) (uint64, error) {
	old, err := a.point.Insert(K(key), a.to(value))
	return a.from(old), err
}
func (a adapter[K, V, T, E]) InsertNew(key, value uint64) error {
	return a.point.InsertNew(K(key), a.to(value))
}
func (a adapter[K, V, T, E]) Delete(key uint64) uint64 { return a.from(a.point.Delete(K(key))) }
func (a adapter[K, V, T, E]) GangAll(from uint64, buf []item) (int, uint64, bool) {
	own := make([]E, len(buf))
	n, next, more := a.walk.GangAll(K(from), own)
	a.items(buf, own[:n])
	return n, uint64(next), more
}
func (a adapter[K, V, T, E]) items(buf []item, own []E) {
	for i, e := range own {
		buf[i] = a.item(e)
	}
}

func (a adapter[K, V, T, E]) SetTag(key uint64, tag int)      { a.tags.SetTag(K(key), T(tag)) }
func (a adapter[K, V, T, E]) ClearTag(key uint64, tag int)    { a.tags.ClearTag(K(key), T(tag)) }
func (a adapter[K, V, T, E]) Tagged(key uint64, tag int) bool { return a.tags.Tagged(K(key), T(tag)) }
func (a adapter[K, V, T, E]) NextTagged(from uint64, tag int) (uint64, uint64, bool) {
	key, value, ok := a.tags.NextTagged(K(from), T(tag))
	return uint64(key), a.from(value), ok
}
func (a adapter[K, V, T, E]) Gang(from uint64, tag int, buf []item) (int, uint64, bool) {
	own := make([]E, len(buf))
	n, next, more := a.tags.Gang(K(from), T(tag), own)
	a.items(buf, own[:n])
	return n, uint64(next), more
}
func (a adapter[K, V, T, E]) All(tag int) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		walk := a.all
		if a.tags != nil {
			walk = func() iter.Seq2[K, V] { return a.tags.All(T(tag)) }
		}
		for key, value := range walk() {
			if !yield(uint64(key), a.from(value)) {
				return
			}
		}
	}
}

func (a adapter[K, V, T, E]) Alloc(value uint64) (uint64, error) {
	id, err := a.ids.Alloc(a.to(value))
	return uint64(id), err
}
func (a adapter[K, V, T, E]) AllocRange(min, max, value uint64) (uint64, error) {
	id, err := a.ids.AllocRange(K(min), K(max), a.to(value))
	return uint64(id), err
}
func (a adapter[K, V, T, E]) AllocCyclic(min, max, value uint64) (uint64, error) {
	id, err := a.ids.AllocCyclic(K(min), K(max), a.to(value))
	return uint64(id), err
}
func (a adapter[K, V, T, E]) AllocAt(id, value uint64) error {
	return a.ids.AllocAt(K(id), a.to(value))
}
func (a adapter[K, V, T, E]) Reserve(min, max uint64) (uint64, error) {
	id, err := a.ids.Reserve(K(min), K(max))
	return uint64(id), err
}
func (a adapter[K, V, T, E]) ReserveCyclic(min, max uint64) (uint64, error) {
	id, err := a.ids.ReserveCyclic(K(min), K(max))
	return uint64(id), err
}
func (a adapter[K, V, T, E]) ReserveAt(id uint64) error { return a.ids.ReserveAt(K(id)) }
func (a adapter[K, V, T, E]) Publish(id, value uint64)  { a.ids.Publish(K(id), a.to(value)) }
func (a adapter[K, V, T, E]) Cancel(id uint64)          { a.ids.Cancel(K(id)) }
func (a adapter[K, V, T, E]) Withdraw(id uint64) uint64 { return a.from(a.ids.Withdraw(K(id))) }
func (a adapter[K, V, T, E]) Free(id uint64) bool       { return a.ids.Free(K(id)) }
func (a adapter[K, V, T, E]) IsFree(id uint64) bool     { return a.ids.IsFree(K(id)) }
func (a adapter[K, V, T, E]) Cursor() uint64            { return uint64(a.ids.Cursor()) }
func (a adapter[K, V, T, E]) Check() error {
	if a.check == nil {
		return nil
	}
	return a.check()
}

// kind is a generated type and its figures.
type kind struct {
	name               string
	keyMax, typeMax    uint64 // of the keys, and of the Go type that they have
	tags               int
	ids, grows, locked bool
	errKey, errValue   error // errKey is nil where every number is a key
	errFull, errTaken  error
	make               func() anyTree
}

// pointer and word convert values of gc and slab trees.
func pointer(v uint64) *uint64 {
	if v == 0 {
		return nil
	}
	return &v
}

func pointee(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}

func word(v uint64) uint64 { return v }

// gc fills in what all adapters of gc trees have in common, slab of slab trees.
func gc[K key, T ~int, E ~struct {
	Key   K
	Value *uint64
}](a adapter[K, *uint64, T, E]) anyTree {
	a.to, a.from = pointer, pointee
	a.item = func(e E) item {
		plain := struct {
			Key   K
			Value *uint64
		}(e)
		return item{uint64(plain.Key), pointee(plain.Value)}
	}
	return a
}

func slab[K key, T ~int, E ~struct {
	Key   K
	Value uint64
}](a adapter[K, uint64, T, E]) anyTree {
	a.to, a.from = word, word
	a.item = func(e E) item {
		plain := struct {
			Key   K
			Value uint64
		}(e)
		return item{uint64(plain.Key), plain.Value}
	}
	return a
}

// noTag stands for the tags of a type that has none.
type noTag int

var heapKinds = []kind{
	{
		name: "Tree8", keyMax: Tree8KeyMax, typeMax: math.MaxUint8, errValue: ErrTree8Value,
		make: func() anyTree {
			t := NewTree8[uint64]()
			return gc(adapter[uint8, *uint64, noTag, Tree8Entry[uint64]]{point: t, walk: t, all: t.All})
		},
	}, {
		name: "Tree16", keyMax: Tree16KeyMax, typeMax: math.MaxUint16, tags: Tree16Tags, locked: true, errValue: ErrTree16Value,
		make: func() anyTree {
			t := NewTree16[uint64]()
			return gc(adapter[uint16, *uint64, Tree16Tag, Tree16Entry[uint64]]{point: t, walk: t, tags: t, check: t.Check})
		},
	}, {
		name: "Tree22GC", keyMax: Tree22GCKeyMax, typeMax: math.MaxUint32, tags: Tree22GCTags, ids: true,
		errKey: ErrTree22GCKey, errValue: ErrTree22GCValue, errFull: ErrTree22GCFull, errTaken: ErrTree22GCTaken,
		make: func() anyTree {
			t := NewTree22GC[uint64]()
			return gc(adapter[uint32, *uint64, Tree22GCTag, Tree22GCEntry[uint64]]{point: t, walk: t, tags: t, ids: t, check: t.Check})
		},
	}, {
		name: "Tree22Slab", keyMax: Tree22SlabKeyMax, typeMax: math.MaxUint32, tags: Tree22SlabTags, ids: true,
		errKey: ErrTree22SlabKey, errValue: ErrTree22SlabValue, errFull: ErrTree22SlabFull, errTaken: ErrTree22SlabTaken,
		make: func() anyTree {
			t := NewTree22Slab()
			return slab(adapter[uint32, uint64, Tree22SlabTag, Tree22SlabEntry]{point: t, walk: t, tags: t, ids: t, check: t.Check})
		},
	}, {
		name: "Tree32", keyMax: Tree32KeyMax, typeMax: math.MaxUint32, tags: Tree32Tags, errValue: ErrTree32Value,
		make: func() anyTree {
			t := NewTree32[uint64]()
			return gc(adapter[uint32, *uint64, Tree32Tag, Tree32Entry[uint64]]{point: t, walk: t, tags: t, check: t.Check})
		},
	}, {
		name: "Tree32Slab", keyMax: Tree32SlabKeyMax, typeMax: math.MaxUint32, tags: Tree32SlabTags, errValue: ErrTree32SlabValue,
		make: func() anyTree {
			t := NewTree32Slab()
			return slab(adapter[uint32, uint64, Tree32SlabTag, Tree32SlabEntry]{point: t, walk: t, tags: t, check: t.Check})
		},
	}, {
		name: "Tree64", keyMax: Tree64KeyMax, typeMax: math.MaxUint64, tags: Tree64Tags, ids: true, grows: true, locked: true,
		errValue: ErrTree64Value, errFull: ErrTree64Full, errTaken: ErrTree64Taken,
		make: func() anyTree {
			t := NewTree64[uint64]()
			return gc(adapter[uint64, *uint64, Tree64Tag, Tree64Entry[uint64]]{point: t, walk: t, tags: t, ids: t, check: t.Check})
		},
	}, {
		name: "Tree64Slab", keyMax: Tree64SlabKeyMax, typeMax: math.MaxUint64, tags: Tree64SlabTags, ids: true, grows: true,
		errValue: ErrTree64SlabValue, errFull: ErrTree64SlabFull, errTaken: ErrTree64SlabTaken,
		make: func() anyTree {
			t := NewTree64Slab()
			return slab(adapter[uint64, uint64, Tree64SlabTag, Tree64SlabEntry]{point: t, walk: t, tags: t, ids: t, check: t.Check})
		},
	}, {
		name: "Heap6", keyMax: Heap6KeyMax, typeMax: math.MaxUint8, tags: Heap6Tags, ids: true, locked: true,
		errKey: ErrHeap6Key, errValue: ErrHeap6Value, errFull: ErrHeap6Full, errTaken: ErrHeap6Taken,
		make: func() anyTree {
			t := NewHeap6[uint64]()
			return gc(adapter[uint8, *uint64, Heap6Tag, Heap6Entry[uint64]]{point: t, walk: t, tags: t, ids: t, check: t.Check})
		},
	}, {
		name: "Heap9", keyMax: Heap9KeyMax, typeMax: math.MaxUint16, errKey: ErrHeap9Key, errValue: ErrHeap9Value,
		make: func() anyTree {
			t := NewHeap9()
			return slab(adapter[uint16, uint64, noTag, Heap9Entry]{point: t, walk: t, all: t.All, check: t.Check})
		},
	}, {
		name: "Deep7", keyMax: Deep7KeyMax, typeMax: math.MaxUint8, tags: Deep7Tags, ids: true, grows: true,
		errKey: ErrDeep7Key, errValue: ErrDeep7Value, errFull: ErrDeep7Full, errTaken: ErrDeep7Taken,
		make: func() anyTree {
			t := NewDeep7[uint64]()
			return gc(adapter[uint8, *uint64, Deep7Tag, Deep7Entry[uint64]]{point: t, walk: t, tags: t, ids: t, check: t.Check})
		},
	}, {
		name: "Deep64", keyMax: Deep64KeyMax, typeMax: math.MaxUint64, tags: Deep64Tags, grows: true, locked: true, errValue: ErrDeep64Value,
		make: func() anyTree {
			t := NewDeep64()
			return slab(adapter[uint64, uint64, Deep64Tag, Deep64Entry]{point: t, walk: t, tags: t, check: t.Check})
		},
	},
}

// kinds are all trees with an order: those of the heap and the mapped ones.
func kinds() []kind {
	list := slices.Clone(heapKinds)
	for _, s := range shapes {
		list = append(list, kind{
			name: s.name, keyMax: uint64(s.keys) - 1, typeMax: math.MaxUint32, tags: s.tags, errKey: s.errKey, errValue: s.errSlot,
			make: func() anyTree {
				t, err := s.make(s.memory(), nil)
				if err != nil {
					panic(err)
				}
				return mappedTree{tree: t}
			},
		})
	}
	return list
}

// mappedTree makes an anyTree of a mapped one.
type mappedTree struct {
	anyTree // nil: what a mapped tree has not
	tree    tree
}

func (m mappedTree) Lookup(key uint64) uint64 { return uint64(m.tree.Lookup(uint32(key))) }
func (m mappedTree) Insert(key, value uint64) (uint64, error) {
	old, err := m.tree.Insert(uint32(key), uint32(value))
	return uint64(old), err
}
func (m mappedTree) InsertNew(key, value uint64) error {
	return m.tree.InsertNew(uint32(key), uint32(value))
}
func (m mappedTree) Delete(key uint64) uint64 { return uint64(m.tree.Delete(uint32(key))) }
func (m mappedTree) GangAll(from uint64, buf []item) (int, uint64, bool) {
	own := make([]entry, len(buf))
	n, next, more := m.tree.GangAll(uint32(from), own)
	for i, e := range own[:n] {
		buf[i] = item{uint64(e.Key), uint64(e.Slot)}
	}
	return n, uint64(next), more
}
func (m mappedTree) SetTag(key uint64, tag int)      { m.tree.SetTag(uint32(key), tag) }
func (m mappedTree) ClearTag(key uint64, tag int)    { m.tree.ClearTag(uint32(key), tag) }
func (m mappedTree) Tagged(key uint64, tag int) bool { return m.tree.Tagged(uint32(key), tag) }
func (m mappedTree) NextTagged(from uint64, tag int) (uint64, uint64, bool) {
	key, slot, ok := m.tree.NextTagged(uint32(from), tag)
	return uint64(key), uint64(slot), ok
}
func (m mappedTree) Gang(from uint64, tag int, buf []item) (int, uint64, bool) {
	own := make([]entry, len(buf))
	n, next, more := m.tree.Gang(uint32(from), tag, own)
	for i, e := range own[:n] {
		buf[i] = item{uint64(e.Key), uint64(e.Slot)}
	}
	return n, uint64(next), more
}
func (m mappedTree) All(tag int) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		for key, slot := range m.tree.All(tag) {
			if !yield(uint64(key), uint64(slot)) {
				return
			}
		}
	}
}
func (m mappedTree) Check() error { return nil }

func eachKind(t *testing.T, run func(t *testing.T, k kind)) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) { run(t, k) })
	}
}

// testKeys returns keys in order: all where there are few, else the dense low ones
// and those around each power of two and both ends.
func (k kind) testKeys(dense, around uint64) []uint64 {
	seen := map[uint64]bool{}
	add := func(from, n uint64) {
		for i := range n {
			if key := from + i; key >= from && key <= k.keyMax {
				seen[key] = true
			}
		}
	}
	add(0, dense)
	for at := uint64(2); at != 0 && at <= k.keyMax; at <<= 1 {
		add(at-min(at, around), 2*around)
	}
	add(k.keyMax-min(k.keyMax, around), around+1)
	keys := make([]uint64, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// ones returns the keys 1, 3, 7 and so on, each of which has one bit more.
func (k kind) ones() (keys []uint64) {
	for bit := range 64 {
		if key := ^uint64(0) >> (63 - bit); key <= k.keyMax {
			keys = append(keys, key)
		}
	}
	return keys
}

// walkAll returns what one whole walk in batches reports: all entries for tag -1.
func walkAll(t anyTree, tag, batch int) (list []item) {
	buf := make([]item, batch)
	for from, more := uint64(0), true; more; {
		var n int
		if tag < 0 {
			n, from, more = t.GangAll(from, buf)
		} else {
			n, from, more = t.Gang(from, tag, buf)
		}
		list = append(list, buf[:n]...)
	}
	return list
}
