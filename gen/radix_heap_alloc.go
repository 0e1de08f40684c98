package main

import "github.com/dave/jennifer/jen"

// emitAlloc emits what a tree with the allocator tag has beside the others.
func (t *heapTree) emitAlloc(f *jen.File, w writer) {
	f.Add(w.text(t.on, `
// Alloc inserts value at the lowest free id. Errors: Err{T}Full, Err{T}Value.
func (t *{T}{P}) Alloc(value {Val}) (id {K}, err error) {
	return t.AllocRange(0, {T}KeyMax, value)
}

// AllocRange inserts value at the lowest free id from min to max. Errors:
// Err{T}Full, Err{T}Value, and Err{T}Key for a range that is none.
func (t *{T}{P}) AllocRange(min, max {K}, value {Val}) (id {K}, err error) {
	if value == {nil} {
		return 0, fmt.Errorf("allocate id: %w", Err{T}Value)
	}
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	if id, err = t.reserve(min, min, max); err == nil {
		t.put(id, value)
	}
	return id, err
}

// AllocCyclic inserts value at the next free id after the one that was allocated
// cyclically before, from min to max; behind max it goes on at min. Errors are
// those of AllocRange.
func (t *{T}{P}) AllocCyclic(min, max {K}, value {Val}) (id {K}, err error) {
	if value == {nil} {
		return 0, fmt.Errorf("allocate id: %w", Err{T}Value)
	}
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	if id, err = t.reserveCyclic(min, max); err == nil {
		t.put(id, value)
	}
	return id, err
}

// AllocAt inserts value at id. Errors: Err{T}Taken, Err{T}Value, and Err{T}Key
// for an id that is none.
func (t *{T}{P}) AllocAt(id {K}, value {Val}) error {
	if value == {nil} {
		return fmt.Errorf("allocate id %d: %w", id, Err{T}Value)
	}
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	err := t.reserveAt(id)
	if err == nil {
		t.put(id, value)
	}
	return err
}

// Reserve takes the lowest free id from min to max, with no entry that readers
// could see, until Publish or Cancel. Errors are those of AllocRange.
func (t *{T}{P}) Reserve(min, max {K}) (id {K}, err error) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	return t.reserve(min, min, max)
}

// ReserveCyclic takes an id as Reserve does, in the order of AllocCyclic.
func (t *{T}{P}) ReserveCyclic(min, max {K}) (id {K}, err error) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	return t.reserveCyclic(min, max)
}

// ReserveAt takes id as Reserve does. Errors are those of AllocAt.
func (t *{T}{P}) ReserveAt(id {K}) error {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	return t.reserveAt(id)
}

// Publish makes value visible at an id that is reserved. It panics at any other.
func (t *{T}{P}) Publish(id {K}, value {Val}) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	if value == {nil} || !t.isReserved(id) {
		panic("radix: I5: publish without a value or at an id that is not reserved")
	}
	t.put(id, value)
}

// Cancel frees an id that is reserved. It panics at any other.
func (t *{T}{P}) Cancel(id {K}) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	if !t.isReserved(id) {
		panic("radix: I5: cancel at an id that is not reserved")
	}
	{root}.give(id)
}

// Withdraw takes the entry of id out of the sight of readers and returns it,
// {absent} if there is none. The id stays reserved: it is freed, after a grace period
// perhaps, by Cancel or Free.
func (t *{T}{P}) Withdraw(id {K}) (old {Val}) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	leaf := t.find(id)
	if leaf == nil {
		return {nil}
	}
	old = leaf.slot[id&{leafMask}].Load()
	if old != {nil} {
		t.clear(leaf, id)
	}
	return old
}

// Free frees an id, be it reserved or with an entry, which goes as by Delete. It
// reports false for an id that was free already.
func (t *{T}{P}) Free(id {K}) bool {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	leaf := t.find(id)
	if leaf == nil || leaf.isFree(id) {
		return false
	}
	if leaf.slot[id&{leafMask}].Load() != {nil} {
		t.clear(leaf, id)
	}
	{root}.give(id)
	return true
}

// IsFree reports whether id is an id and has neither entry nor reservation. It is
// called as the writing methods are.
func (t *{T}{P}) IsFree(id {K}) bool {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
[checked]	if id > {T}KeyMax {
[checked]		return false
[checked]	}
	leaf := t.find(id)
	return leaf == nil || leaf.isFree(id)
}

// Cursor returns the id at which the next cyclic allocation begins to look. It is
// called as the writing methods are.
func (t *{T}{P}) Cursor() {K} {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	return t.cursor
}

func (t *{T}{P}) isReserved(id {K}) bool {
	leaf := t.find(id)
	return leaf != nil && !leaf.isFree(id) && leaf.slot[id&{leafMask}].Load() == {nil}
}

// put makes value visible at an id that is taken.
func (t *{T}{P}) put(id {K}, value {Val}) {
	t.find(id).slot[id&{leafMask}].Store(value) // C
}

// reserve takes the lowest free id >= from, or else that from min on.
func (t *{T}{P}) reserve(from, min, max {K}) (id {K}, err error) {
[checked]	if min > max || max > {T}KeyMax {
[!checked]	if min > max {
		return 0, fmt.Errorf("allocate id from %d to %d: %w", min, max, Err{T}Key)
	}
	id, ok := t.nextFree(from)
	if from > min && (!ok || id > max) {
		id, ok = t.nextFree(min)
	}
	if !ok || id > max {
		return 0, fmt.Errorf("allocate id from %d to %d: %w", min, max, Err{T}Full)
	}
	t.take(id)
	return id, nil
}

func (t *{T}{P}) reserveCyclic(min, max {K}) (id {K}, err error) {
	from := min
	if min < t.cursor && t.cursor <= max {
		from = t.cursor
	}
	id, err = t.reserve(from, min, max)
	if err == nil {
		t.cursor = id + 1
	}
	return id, err
}

func (t *{T}{P}) reserveAt(id {K}) error {
[checked]	if id > {T}KeyMax {
[checked]		return fmt.Errorf("allocate id %d: %w", id, Err{T}Key)
[checked]	}
	if leaf := t.find(id); leaf != nil && !leaf.isFree(id) {
		return fmt.Errorf("allocate id %d: %w", id, Err{T}Taken)
	}
	t.take(id)
	return nil
}

// nextFree returns the lowest free id >= from. It looks at the bits of one way
// down and up only.
func (t *{T}{P}) nextFree(from {K}) (id {K}, ok bool) {
[!dyn]	return t.root.nextFree(0, from)
[dyn]	root := t.root.Load()
[dyn]	if from > root.last {
[dyn]		return from, true
[dyn]	}
[dyn]	if id, ok = root.nextFree(0, from); ok {
[dyn]		return id, true
[dyn]	}
[dyn]	return root.last + 1, root.last < {T}KeyMax
}`))
	t.nodes(func(w writer, on flags) {
		f.Add(w.text(on, `
// nextFree is nextFree for the node whose first id is base.
func (n *{node}{P}) nextFree(base, from {K}) (id {K}, ok bool) {
	first := {first}
	mask := ^uint64(0) << (first & 63)
	for w := first >> 6; w < {words}; w++ {
		free := n.free[w] & mask
		mask = ^uint64(0)
[leaf][!dyn]		if free != 0 {
[leaf][!dyn]			return base | {K}(w<<6|uint(bits.TrailingZeros64(free))), true
[leaf][!dyn]		}
[inner]		for ; free != 0; free &= free - 1 {
[inner]			i := w<<6 | uint(bits.TrailingZeros64(free))
[inner]			at := base | {K}(i){step}
[dyn]			if n.shift == 0 {
[dyn]				return at, true
[dyn]			}
[inner]			child := {kids}[i].Load()
[inner]			if child == nil {
[inner]				return max(at, from), true
[inner]			}
[inner]			if id, ok = child.nextFree(at, from); ok {
[inner]				return id, true
[inner]			}
[inner]		}
	}
	return 0, false
}`))
	})
}
