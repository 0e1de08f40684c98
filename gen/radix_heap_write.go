package main

import "github.com/dave/jennifer/jen"

func (t *heapTree) emitWriters(f *jen.File, w writer) {
	f.Add(w.text(t.on, `
// Insert sets the value of key and returns the one before, {absent} if key was absent.
[tags]// The tags of key stay as they are.
[free]// An id that is free is taken, one that is reserved is published by it.
[checked]// On an error nothing has changed: Err{T}Key or Err{T}Value.
[!checked]// On an error nothing has changed: Err{T}Value.
func (t *{T}{P}) Insert(key {K}, value {Val}) (old {Val}, err error) {
[checked]	if key > {T}KeyMax || value == {nil} {
[!checked]	if value == {nil} {
		return {nil}, {t}Refuse(key)
	}
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	leaf := t.find(key)
[counts]	if leaf == nil || leaf.isFree(key) {
[!counts][!single]	if leaf == nil {
[takes]		leaf = t.take(key)
[takes]	}
	slot := &leaf.slot[key&{leafMask}]
	old = slot.Load()
	slot.Store(value) // C
	return old, nil
}

// InsertNew sets the value of a key that the caller knows to be absent, without
// looking.{reserved} Errors are those of Insert.
func (t *{T}{P}) InsertNew(key {K}, value {Val}) error {
[checked]	if key > {T}KeyMax || value == {nil} {
[!checked]	if value == {nil} {
		return {t}Refuse(key)
	}
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
[counts]	if arch.Invariants {
[counts]		if leaf := t.find(key); leaf != nil && !leaf.isFree(key) {
[counts]			panic("radix: I1: new key is present")
[counts]		}
[counts]	}
[counts]	t.take(key).slot[key&{leafMask}].Store(value) // C
[!counts]	leaf := t.find(key)
[!counts][!single]	if leaf == nil {
[!counts][!single]		leaf = t.take(key)
[!counts][!single]	}
[!counts]	if arch.Invariants && leaf.slot[key&{leafMask}].Load() != {nil} {
[!counts]		panic("radix: I1: new key is present")
[!counts]	}
[!counts]	leaf.slot[key&{leafMask}].Store(value) // C
	return nil
}

//go:noinline
func {t}Refuse(key {K}) error {
[checked]	if key > {T}KeyMax {
[checked]		return fmt.Errorf("insert key %d: %w", key, Err{T}Key)
[checked]	}
	return fmt.Errorf("insert key %d: %w", key, Err{T}Value)
}

[free]// Delete clears all tags of key, then its value, frees the id, and returns the
[free]// value, {absent} if key was absent. An id that is only reserved stays so.
[!free][tags]// Delete clears all tags of key, then its value, and returns the value, {absent} if
[!free][tags]// key was absent.
[!free][!tags]// Delete clears the value of key and returns it, {absent} if key was absent.
func (t *{T}{P}) Delete(key {K}) (old {Val}) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	leaf := t.find(key)
[checked]	if leaf == nil {
[!checked][!single]	if leaf == nil {
[checked]		return {nil}
[!checked][!single]		return {nil}
[checked]	}
[!checked][!single]	}
	old = leaf.slot[key&{leafMask}].Load()
	if old != {nil} {
		t.clear(leaf, key)
[counts]		{root}.give(key)
	}
	return old
}

// clear takes an entry out of the sight of readers.
func (t *{T}{P}) clear(leaf *{leaf}{P}, key {K}) {
[slot-first]	leaf.slot[key&{leafMask}].Store({nil})
[delay]	runtime.Gosched()
[tags]	for tag := range {T}Tag({T}Tags) {
[tags]		t.clearTag(leaf, key, tag)
[tags]	}
[!slot-first]	leaf.slot[key&{leafMask}].Store({nil})
}
`))
	if t.on["tags"] {
		f.Add(w.text(t.on, `
// SetTag sets the tag on key, which must be present.
func (t *{T}{P}) SetTag(key {K}, tag {T}Tag) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	if t.Lookup(key) == {nil} {
		panic("radix: I2: tag on absent key")
	}
	{root}.setTag(key, tag)
}

// ClearTag clears the tag on key; nothing happens where it is not set.
func (t *{T}{P}) ClearTag(key {K}, tag {T}Tag) {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	if leaf := t.find(key); leaf != nil {
		t.clearTag(leaf, key, tag)
	}
}

func (t *{T}{P}) clearTag(leaf *{leaf}{P}, key {K}, tag {T}Tag) {
	if i := key & {leafMask}; leaf.tags[tag][i>>6]>>(i&63)&1 != 0 {
		{root}.clearTag(key, tag)
	}
}`))
	}
	f.Add(w.text(t.on, `
[takes]// take makes the nodes on the way to key{andCounts}returns its leaf.
[takes]func (t *{T}{P}) take(key {K}) *{leaf}{P} {
[dyn]	root := t.root.Load()
[dyn]	if key > root.last {
[dyn]		root = t.grow(root, key)
[dyn]	}
[dyn][free]	leaf, _ := root.take(key)
[dyn][free]	return leaf
[dyn][!free]	return root.take(key)
[!dyn][free]	leaf, _ := t.root.take(key)
[!dyn][free]	return leaf
[takes][!dyn][!free]	return t.root.take(key)
[takes]}

[dyn]// grow puts new roots above root, as many as key needs. An empty root is dropped.
[dyn]func (t *{T}{P}) grow(root *{t}Node{P}, key {K}) *{t}Node{P} {
[dyn]	for key > root.last {
[dyn]		old := root
[dyn]		root = {t}New{P}(old.shift + {t}Bits)
[dyn]		if old.used > 0 {
[dyn]			root.inner().child[0].Store(old)
[dyn]			root.used = 1
[root-first]	t.root.Store(root) // A
[dyn][delay]			runtime.Gosched()
[dyn][tags]			for tag := range old.tags {
[dyn][tags]				if old.tags[tag][0] != 0 {
[dyn][tags]					{t}SetBit(root.tags[tag][:], 0)
[dyn][tags]				}
[dyn][tags]			}
[dyn][free]			if old.free[0] == 0 {
[dyn][free]				root.free[0] &^= 1
[dyn][free]			}
[dyn]		}
[dyn]	}
[dyn][!root-first]	t.root.Store(root) // A
[dyn]	return root
[dyn]}
`))
	t.nodes(func(w writer, on flags) { t.emitNodeWriters(f, w, on) })
	f.Add(w.text(t.on, `
[counts]// isFree reports whether nobody has key, by entry{orReserved}.
[counts]func (n *{leaf}{P}) isFree(key {K}) bool {
[free]	i := key & {leafMask}
[free]	return n.free[i>>6]>>(i&63)&1 != 0
[counts][!free]	return n.slot[key&{leafMask}].Load() == {nil}
[counts]}

[tags]func {t}SetBit(words []uint64, i uint) {
[tags]	word := &words[i>>6]
[tags]	if old := *word; old>>(i&63)&1 == 0 {
[tags]		arch.StoreRelease64(word, old|1<<(i&63)) // E
[tags]	}
[tags]}

[tags]// {t}ClearBit clears bit i and reports whether none is left.
[tags]func {t}ClearBit(words []uint64, i uint) (none bool) {
[tags]	word := &words[i>>6]
[tags]	arch.StoreRelease64(word, *word&^(1<<(i&63))) // G
[tags]	return {t}None(words)
[tags]}

[bits]func {t}None(words []uint64) bool {
[bits]	for _, w := range words {
[bits]		if w != 0 {
[bits]			return false
[bits]		}
[bits]	}
[bits]	return true
[bits]}

[free]// {t}Fill sets the first n bits.
[free]func {t}Fill(words []uint64, n uint) {
[free]	for i := range words {
[free]		words[i] = ^uint64(0) >> (64 - min(64, n-uint(i)<<6))
[free]	}
[free]}`))
}

func (t *heapTree) emitNodeWriters(f *jen.File, w writer, on flags) {
	f.Add(w.text(on, `
[takes]// take is take for one node{fullDoc}.
[free]func (n *{node}{P}) take(key {K}) (leaf *{leaf}{P}, full bool) {
[takes][!free]func (n *{node}{P}) take(key {K}) *{leaf}{P} {
[index]	i := {index}
[dyn]	if n.shift == 0 {
[leaf][unlink]	n.used++
[leaf][free]	n.free[i>>6] &^= 1 << (i & 63)
[leaf][free]	return {self}, {t}None(n.free[:])
[takes][leaf][!free]	return {self}
[dyn]	}
[inner]	child := {kids}[i].Load()
[inner]	if child == nil {
[dyn]		child = {t}New{P}(n.shift - {t}Bits)
[inner][!dyn]		child = new({kid}{P})
[inner][!dyn][free]		{t}Fill(child.free[:], {kidSlots})
[inner]		{kids}[i].Store(child) // B
[inner][unlink]		n.used++
[inner]	}
[inner][!free]	return child.take(key)
[inner][free]	if leaf, full = child.take(key); !full {
[inner][free]		return leaf, false
[inner][free]	}
[inner][free]	n.free[i>>6] &^= 1 << (i & 63)
[inner][free]	return leaf, {t}None(n.free[:])
[takes]}
`))
	if t.on["counts"] {
		f.Add(w.text(on, `
// give undoes take for one node{unlinks}.
[unlink]func (n *{node}{P}) give(key {K}) (empty bool) {
[!unlink]func (n *{node}{P}) give(key {K}) {
[index]	i := {index}
[dyn]	if n.shift == 0 {
[leaf][unlink]	n.used--
[dyn]	} else if {kids}[i].Load().give(key) {
[inner][unlink][!dyn]	if {kids}[i].Load().give(key) {
[inner][unlink]		{kids}[i].Store(nil) // H
[inner][unlink]		n.used--
[inner][unlink]	}
[inner][!unlink]	{kids}[i].Load().give(key)
[free]	n.free[i>>6] |= 1 << (i & 63)
[unlink]	return n.used == 0
}`))
	}
	if !t.on["tags"] {
		return
	}
	f.Add(w.text(on, `
func (n *{node}{P}) setTag(key {K}, tag {T}Tag) {
	i := {index}
[dyn]	if n.shift > 0 {
[inner]	{kids}[i].Load().setTag(key, tag)
[dyn]	}
	{t}SetBit(n.tags[tag][:], i)
}

// clearTag clears the tag on key, which is set, and reports whether the node has
// none left.
func (n *{node}{P}) clearTag(key {K}, tag {T}Tag) (none bool) {
	i := {index}
[inner][!dyn]	if !{kids}[i].Load().clearTag(key, tag) {
[dyn]	if n.shift > 0 && !{kids}[i].Load().clearTag(key, tag) {
[inner][!recheck]		return false
[inner]	}
	return {t}ClearBit(n.tags[tag][:], i)
}`))
}
