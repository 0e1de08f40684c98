package main

import (
	"strings"

	"github.com/dave/jennifer/jen"
)

// emitHashTree emits a tree of 128-bit keys: a radix tree over their hashes, which
// keeps whole keys and compares them.
//
//	tree Tree128 key=128 own=gc writers=locked
func emitHashTree(f *jen.File, b *block) error {
	if err := b.allow("key", "own", "writers", "for"); err != nil {
		return err
	}
	if v, ok := b.opts["for"]; ok && v != "test" {
		return b.pos.errorf("tree %s: for=%s, want for=test or nothing", b.name, v)
	}
	if own := b.opts["own"]; own != "gc" {
		return b.pos.errorf("tree %s: own=%s with key=128, want own=gc", b.name, own)
	}
	writers := b.opts["writers"]
	if writers != "one" && writers != "locked" {
		return b.pos.errorf("tree %s: writers=%s, want one or locked", b.name, writers)
	}
	if len(b.items) > 0 {
		return b.items[0].pos.errorf("tree %s: keys of 128 bits are hashed: no levels, tags or ids, got %q", b.name, b.items[0].words[0])
	}
	if err := b.claim(b.pos, b.name, b.name+"Key", "New"+b.name, "Err"+b.name+"Value"); err != nil {
		return err
	}
	on := flags{writers: true}
	w := newWriter(map[string]any{"T": b.name, "t": strings.ToLower(b.name[:1]) + b.name[1:]})
	f.Add(w.text(on, `
const (
	{t}Bits = 6 - 4*arch.Stress // of the hash that a node looks at
	{t}Slots = 1 << {t}Bits
	{t}HashBits = 64 - 56*arch.Stress // few under stress, for keys of one hash
)

// Err{T}Value is the error of Insert, to be compared with errors.Is.
var Err{T}Value = errors.New("radix: value nil means absent")

// {T}Key is a key, such as a file's (device and inode, offset).
type {T}Key struct {
	Hi, Lo uint64
}`))
	header := w.replace.Replace(strings.Join(on.lines(hashHeader), "\n"))
	f.Add(w.text(on, docText(b.doc, header)+`
type {T}[V any] struct {
[locked]	mu sync.Mutex // held by each writing method
[locked]	_ arch.Pad
	seed maphash.Seed // immutable
	root {t}Node[V]
}

// {t}Node has, for each value of some bits of the hash, the entry or the node that
// these bits lead to.
type {t}Node[V any] struct {
	slot [{t}Slots]atomic.Pointer[{t}Item[V]]
}

// {t}Item is a node, or an entry and the others with the same hash. Immutable.
type {t}Item[V any] struct {
	node *{t}Node[V]
	hash uint64
	key {T}Key
	value *V
	next *{t}Item[V]
}

// New{T} returns an empty tree.
func New{T}[V any]() *{T}[V] {
	return &{T}[V]{seed: maphash.MakeSeed()}
}

func (t *{T}[V]) hash(key {T}Key) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], key.Hi)
	binary.LittleEndian.PutUint64(b[8:], key.Lo)
	return maphash.Bytes(t.seed, b[:]) >> (64 - {t}HashBits)
}

// Lookup returns the value of key, nil if it is absent.
func (t *{T}[V]) Lookup(key {T}Key) *V {
	hash := t.hash(key)
	item := t.root.slot[hash%{t}Slots].Load() // A
	for shift := uint({t}Bits); item != nil && item.node != nil; shift += {t}Bits {
		item = item.node.slot[hash>>shift%{t}Slots].Load() // A
	}
	for ; item != nil; item = item.next {
		if item.key == key {
			return item.value
		}
	}
	return nil
}

// Insert sets the value of key and returns the one before, nil if key was absent.
// Its only error is Err{T}Value.
func (t *{T}[V]) Insert(key {T}Key, value *V) (old *V, err error) {
	if value == nil {
		return nil, fmt.Errorf("insert key %x:%x: %w", key.Hi, key.Lo, Err{T}Value)
	}
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	entry := &{t}Item[V]{hash: t.hash(key), key: key, value: value}
	slot, shift := t.find(entry.hash)
	item := slot.Load()
	if item == nil || item.hash == entry.hash {
		entry.next, old = item.without(key)
	} else {
		entry = item.join(entry, shift)
	}
	slot.Store(entry) // A
	return old, nil
}

// Delete takes key out and returns its value, nil if key was absent.
func (t *{T}[V]) Delete(key {T}Key) (old *V) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	old, _ = t.root.remove(key, t.hash(key), 0)
	return old
}

// remove takes key out and unlinks nodes that it leaves empty; empty says that n
// is one.
func (n *{t}Node[V]) remove(key {T}Key, hash uint64, shift uint) (old *V, empty bool) {
	slot := &n.slot[hash>>shift%{t}Slots]
	item := slot.Load()
	if item != nil && item.node != nil {
		old, empty = item.node.remove(key, hash, shift+{t}Bits)
		item = nil
	} else {
		item, old = item.without(key)
		empty = item == nil
	}
	if old == nil {
		return nil, false
	}
	if item != nil || empty {
		slot.Store(item) // A
	}
	return old, empty && n.isEmpty()
}

func (n *{t}Node[V]) isEmpty() bool {
	for i := range n.slot {
		if n.slot[i].Load() != nil {
			return false
		}
	}
	return true
}

// find returns the slot that the hash leads to, which holds no node, and the
// shift of the bits behind those that lead there.
func (t *{T}[V]) find(hash uint64) (slot *atomic.Pointer[{t}Item[V]], shift uint) {
	slot, shift = &t.root.slot[hash%{t}Slots], {t}Bits
	for item := slot.Load(); item != nil && item.node != nil; item = slot.Load() {
		slot = &item.node.slot[hash>>shift%{t}Slots]
		shift += {t}Bits
	}
	return slot, shift
}

// join returns a node that leads to e and to other, whose hashes differ in the bits
// from shift on; as many nodes as they have bits in common there.
func (e *{t}Item[V]) join(other *{t}Item[V], shift uint) *{t}Item[V] {
	node := new({t}Node[V])
	i, j := e.hash>>shift%{t}Slots, other.hash>>shift%{t}Slots
	if i == j {
		node.slot[i].Store(e.join(other, shift+{t}Bits))
	} else {
		node.slot[i].Store(e)
		node.slot[j].Store(other)
	}
	return &{t}Item[V]{node: node}
}

// without returns the list e less the entry of key, and the value of that, nil if
// it is not there. It copies what stands before the entry and changes nothing.
func (e *{t}Item[V]) without(key {T}Key) (rest *{t}Item[V], old *V) {
	if e == nil {
		return nil, nil
	}
	if e.key == key {
		return e.next, e.value
	}
	rest, old = e.next.without(key)
	if old == nil {
		return e, nil
	}
	return &{t}Item[V]{hash: e.hash, key: e.key, value: e.value, next: rest}, old
}`))
	return nil
}

const hashHeader = `
{T} is a radix tree over the hashes of keys of 128 bits, to values *V. It keeps
the whole keys and compares them. It has no order, no walks and no tags. New{T}
makes one; the zero value is none, and it is not copied.

Invariants.

	I1. An entry lies behind bits of its hash, the low ones first, at least as many
	    as tell it from all other hashes.
	I2. Entries of one hash are a list that no key is in twice.
	I3. Items never change: a change of the list puts a new list in its place.
	I4. A node that nothing is in is unlinked at once. The root stays.

[one]Writers and readers. One writer at a time, held together by the caller. Any
[locked]Writers and readers. Any number of writers, which hold mu inside each call. Any
number of readers without a lock, who store nothing. Slots are atomic, all else is
immutable.

Ordering.

	A. The store of a slot (release) comes after all that the item, its node and
	   its value hold. Pairs with the readers' loads of the slot, level by level.

Stale reads. A lookup yields the value at some moment of the call. A split puts the
entries that were in a slot into a node before that takes the slot, and a node is
unlinked after its last entry went, so no lookup misses one.

Lifetime. A reader may keep a value as long as it likes: the garbage collector owns
values, items and nodes. A key can be deleted and inserted again between any two
loads of a reader.

Progress. Lookup is wait-free: at most 11 nodes, then the entries of one hash of
64 bits, whose seed is random and secret.
[one]The writer's calls are bounded in the same way.
[locked]Writers block on mu; their calls are bounded in the same way.

Source: Bagwell, "Ideal hash trees" (2001), with the nodes of the radix trees
beside it.`
