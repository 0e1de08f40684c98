package main

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"
)

func (t *heapTree) emitTypes(f *jen.File, w writer, doc []string) {
	f.Add(w.text(t.on, docText(doc, t.header())+`
type {T}{any} struct {
[locked]	mu sync.Mutex // held by each writing method
[free]	cursor {K} // where the next cyclic allocation begins; {where}
[locked]	_ arch.Pad
[one][free]	_ arch.Pad
[dyn]	root atomic.Pointer[{t}Node{P}] // never nil
[!dyn]	root {top}{P}
}

// {T}Entry is an entry as the gang walks report it.
type {T}Entry{any} struct {
	Key {K}
	Value {Val}
}`))
	if t.on["dyn"] {
		t.emitDynamicNodes(f, w)
		return
	}
	f.Add(w.text(t.on, `
// New{T} returns an empty tree.
func New{T}{any}() *{T}{P} {
	t := new({T}{P})
[free]	{t}Fill(t.root.free[:], {topSlots})
	return t
}`))
	for _, l := range t.levels() {
		t.emitFixedNode(f, l)
	}
}

func (t *heapTree) emitFixedNode(f *jen.File, l level) {
	on, what := t.on.with("inner"), "is an inner node"
	if l.kid == "" {
		on, what = t.on.with("leaf"), "is a leaf"
	}
	names := map[string]any{"node": l.node, "kid": l.kid, "what": what, "fanout": 1 << l.bits, "words": max(1, 1<<l.bits/64)}
	f.Add(t.writer(names).text(on, `
// {node} {what} of {fanout} slots.
type {node}{any} struct {
[unlink][inner]	used int32 // children; {where}
[unlink][leaf]	used int32 // keys that are taken; {where}
[free]	free [{words}]uint64 // a bit per slot: room below; {where}
[tags]	tags [{T}Tags][{words}]uint64 // a bit per slot and tag; atomic
[inner]	child [{fanout}]atomic.Pointer[{kid}{P}]
[leaf]	slot [{fanout}]{Slot}
}`))
}

func (t *heapTree) emitDynamicNodes(f *jen.File, w writer) {
	f.Add(w.text(t.on, `
// {t}Node is what inner nodes and leaves begin with.
type {t}Node{any} struct {
	shift uint8 // of the key, to find a slot; 0 = a leaf; immutable
	used int32 // children, or keys of a leaf that are taken; {where}
	last {K} // the last key that a root of this height has room for; immutable
[free]	free [1]uint64 // a bit per slot: room below; {where}
[tags]	tags [{T}Tags][1]uint64 // a bit per slot and tag; atomic
}

type {t}Inner{any} struct {
	{t}Node{P}
	child [{t}Slots]atomic.Pointer[{t}Node{P}]
}

type {t}Leaf{any} struct {
	{t}Node{P}
	slot [{t}Slots]{Slot}
}

// inner and leaf are the whole node that n is the head of: inner where shift is
// not 0, leaf where it is.
func (n *{t}Node{P}) inner() *{t}Inner{P} { return (*{t}Inner{P})(unsafe.Pointer(n)) }
func (n *{t}Node{P}) leaf() *{t}Leaf{P} { return (*{t}Leaf{P})(unsafe.Pointer(n)) }

// New{T} returns an empty tree.
func New{T}{any}() *{T}{P} {
	t := new({T}{P})
	t.root.Store({t}New{P}(0))
	return t
}

func {t}New{any}(shift uint8) (n *{t}Node{P}) {
	if shift == 0 {
		n = &new({t}Leaf{P}).{t}Node
	} else {
		n = &new({t}Inner{P}).{t}Node
	}
	n.shift = shift
	n.last = {T}KeyMax >> ({keyBits} - min({keyBits}, shift+{t}Bits))
[free]	{t}Fill(n.free[:], {t}Fanout(shift))
	return n
}

// {t}Fanout is how many slots of a node there are keys for.
func {t}Fanout(shift uint8) uint { return 1 << min({t}Bits, {keyBits}-uint(shift)) }`))
}

// descend returns the code from the root to the leaf of key and what follows there,
// such as return LEAF.slot; absent is the result where there is no leaf.
func (t *heapTree) descend(absent, follow string) string {
	if t.on["dyn"] {
		return `
	n := t.root.Load() // A
	if key > n.last {
		return ` + absent + `
	}
	for shift := n.shift; shift > 0; shift -= {t}Bits {
		n = (*{t}Inner{P})(unsafe.Pointer(n)).child[key>>shift&({t}Slots-1)].Load() // B
		if n == nil {
			return ` + absent + `
		}
	}
	` + strings.ReplaceAll(follow, "LEAF", "(*{t}Leaf{P})(unsafe.Pointer(n))")
	}
	levels := t.levels()
	code, from := "", "t.root"
	for i, l := range levels[:len(levels)-1] {
		to := []string{"leaf", "mid"}[len(levels)-2-i]
		code += fmt.Sprintf("\n\t%s := %s.child[key>>%d&%d].Load() // B\n\tif %s == nil {\n\t\treturn %s\n\t}",
			to, from, l.shift, 1<<l.bits-1, to, absent)
		from = to
	}
	return code + "\n\t" + strings.ReplaceAll(follow, "LEAF", from)
}

// descendToLeaf returns the code that returns the leaf of key.
func (t *heapTree) descendToLeaf() string {
	levels := t.levels()
	if len(levels) == 1 {
		return "\n\treturn &t.root"
	}
	last := levels[len(levels)-2]
	get := fmt.Sprintf(".child[key>>%d&%d].Load() // B", last.shift, 1<<last.bits-1)
	if len(levels) == 2 {
		return "\n\treturn t.root" + get
	}
	return fmt.Sprintf("\n\tmid := t.root.child[key>>%d&%d].Load() // B\n\tif mid == nil {\n\t\treturn nil\n\t}\n\treturn mid",
		levels[0].shift, 1<<levels[0].bits-1) + get
}

func (t *heapTree) emitReaders(f *jen.File, w writer) {
	find := t.descend("nil", "return LEAF")
	if !t.on["dyn"] {
		find = t.descendToLeaf()
	}
	f.Add(w.text(t.on, `
// Lookup returns the value of key, {absent} if it is absent. It is small enough to be
// inlined.
func (t *{T}{P}) Lookup(key {K}) {Val} {
[checked][!dyn]	if key > {T}KeyMax {
[checked][!dyn]		return {nil}
[checked][!dyn]	}`+t.descend("{nil}", "return LEAF.slot[key&{leafMask}].Load() // D")+`
}

// find returns the leaf of key, nil if there is none.
func (t *{T}{P}) find(key {K}) *{t}Leaf{P} {
[checked][!dyn]	if key > {T}KeyMax {
[checked][!dyn]		return nil
[checked][!dyn]	}`+find+`
}

[tags]// Tagged reports whether key has the tag. Keys that are absent have none.
[tags]func (t *{T}{P}) Tagged(key {K}, tag {T}Tag) bool {
[tags]	leaf := t.find(key)
[tags]	i := key & {leafMask}
[tags]	return leaf != nil && atomic.LoadUint64(&leaf.tags[tag][i>>6])>>(i&63)&1 != 0 // F
[tags]}

[tags]// NextTagged returns the lowest entry >= from that has the tag. ok is false when
[tags]// there is none up to the end of the keys; the search never wraps.
[tags]func (t *{T}{P}) NextTagged(from {K}, tag {T}Tag) (key {K}, value {Val}, ok bool) {
[tags][dyn]	root := t.root.Load() // A
[tags][dyn]	if from > root.last {
[tags][dyn]		return 0, {nil}, false
[tags][dyn]	}
[tags][dyn]	return root.next(0, from, tag)
[tags][!dyn][checked]	if from > {T}KeyMax {
[tags][!dyn][checked]		return 0, {nil}, false
[tags][!dyn][checked]	}
[tags][!dyn]	return t.root.next(0, from, tag)
[tags]}

[tags]// Gang fills buf with the entries >= from that have the tag, in the order of their
[tags]// keys, and returns their number. While more, the walk resumes at next.
[tags]func (t *{T}{P}) Gang(from {K}, tag {T}Tag, buf []{T}Entry{P}) (n int, next {K}, more bool) {
[tags][dyn]	root := t.root.Load() // A
[tags][dyn]	if from > root.last {
[tags][dyn]		return 0, 0, false
[tags][dyn]	}
[tags][dyn]	return root.gang(0, from, tag, buf)
[tags][!dyn][checked]	if from > {T}KeyMax {
[tags][!dyn][checked]		return 0, 0, false
[tags][!dyn][checked]	}
[tags][!dyn]	return t.root.gang(0, from, tag, buf)
[tags]}

// GangAll fills buf with the entries of keys >= from, tagged or not, in the order
// of their keys, and returns their number. While more, the walk resumes at next.
func (t *{T}{P}) GangAll(from {K}, buf []{T}Entry{P}) (n int, next {K}, more bool) {
[dyn]	root := t.root.Load() // A
[dyn]	if from > root.last {
[dyn]		return 0, 0, false
[dyn]	}
[dyn]	return root.gangAll(0, from, buf)
[!dyn][checked]	if from > {T}KeyMax {
[!dyn][checked]		return 0, 0, false
[!dyn][checked]	}
[!dyn]	return t.root.gangAll(0, from, buf)
}
`))
	emitAll(f, w, t.on)
	t.nodes(func(w writer, on flags) { t.emitNodeReaders(f, w, on) })
}

// emitAll emits the iterator of any kind of tree with walks.
func emitAll(f *jen.File, w writer, on flags) {
	f.Add(w.text(on, `
[tags]// All returns the walk over the entries that have the tag, for range. Entries may
[tags]// be changed inside the loop; it reads up to 32 entries ahead.
[tags]func (t *{T}{P}) All(tag {T}Tag) iter.Seq2[{K}, {Val}] {
[!tags]// All returns the walk over the entries, for range. Entries may be changed inside
[!tags]// the loop; it reads up to 32 entries ahead.
[!tags]func (t *{T}{P}) All() iter.Seq2[{K}, {Val}] {
	return func(yield func({K}, {Val}) bool) {
		var buf [32]{T}Entry{P}
		for from, more := {K}(0), true; more; {
			var n int
[tags]			n, from, more = t.Gang(from, tag, buf[:])
[!tags]			n, from, more = t.GangAll(from, buf[:])
			for _, e := range buf[:n] {
				if !yield(e.Key, e.{Field}) {
					return
				}
			}
		}
	}
}`))
}

func (t *heapTree) emitNodeReaders(f *jen.File, w writer, on flags) {
	if t.on["tags"] {
		f.Add(w.text(on, `
// next is NextTagged for the node whose first key is base.
func (n *{node}{P}) next(base, from {K}, tag {T}Tag) (key {K}, value {Val}, ok bool) {
	first := {first}
	mask := ^uint64(0) << (first & 63)
	for w := first >> 6; w < {words}; w++ {
		set := atomic.LoadUint64(&n.tags[tag][w]) & mask // F
		mask = ^uint64(0)
		for ; set != 0; set &= set - 1 {
			i := w<<6 | uint(bits.TrailingZeros64(set))
[dyn]			if n.shift == 0 {
[leaf]			if value := {slots}[i].Load(); value != {nil} { // D
[leaf]				return base | {K}(i), value, true
[leaf]			}
[dyn]			} else if child := {kids}[i].Load(); child != nil { // B
[inner][!dyn]			if child := {kids}[i].Load(); child != nil { // B
[inner]				if key, value, ok = child.next(base|{K}(i){step}, from, tag); ok {
[inner]					return key, value, true
[inner]				}
[inner]			}
		}
	}
	return 0, {nil}, false
}`))
		f.Add(w.text(on, `
// gang is Gang for the node whose first key is base.
func (n *{node}{P}) gang(base, from {K}, tag {T}Tag, buf []{T}Entry{P}) (got int, next {K}, more bool) {
	first := {first}
	mask := ^uint64(0) << (first & 63)
	for w := first >> 6; w < {words}; w++ {
		set := atomic.LoadUint64(&n.tags[tag][w]) & mask // F
		mask = ^uint64(0)
		for ; set != 0; set &= set - 1 {
			i := w<<6 | uint(bits.TrailingZeros64(set))
			at := base | {K}(i){step}`+visit("gang(at, from, tag, buf[got:])")+`
		}
	}
	return got, 0, false
}`))
	}
	f.Add(w.text(on, `
// gangAll is GangAll for the node whose first key is base.
func (n *{node}{P}) gangAll(base, from {K}, buf []{T}Entry{P}) (got int, next {K}, more bool) {
	for i := {first}; i < {fanout}; i++ {
		at := base | {K}(i){step}`+visit("gangAll(at, from, buf[got:])")+`
	}
	return got, 0, false
}`))
}

// visit returns what a gang walk does with slot i, whose first key is at.
func visit(walk string) string {
	return `
[dyn]		if n.shift == 0 {
[leaf]			value := {slots}[i].Load() // D
[leaf]			if value == {nil} {
[leaf]				continue
[leaf]			}
[leaf]			if got == len(buf) {
[leaf]				return got, at, true
[leaf]			}
[leaf]			buf[got] = {T}Entry{P}{at, value}
[leaf]			got++
[dyn]			continue
[dyn]		}
[inner]		child := {kids}[i].Load() // B
[inner]		if child == nil {
[inner]			continue
[inner]		}
[inner]		below, next, more := child.` + walk + `
[inner]		got += below
[inner]		if more {
[inner]			return got, next, true
[inner]		}`
}
