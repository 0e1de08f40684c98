package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"
)

// heapTree is a block of kind "tree" whose nodes are Go objects.
//
//	tree Tree32 key=32 own=gc writers=one empty=unlink
//	  split 10 11 11   # bits of each level: one to three
//	  free             # the keys are ids that the tree can allocate
//	  tag   Dirty      # none to four
//
//	tree Tree64 key=64 own=gc writers=locked empty=unlink
//	  nodes 6 2        # dynamic height, bits of a node; the second: under kpidd_stress
//
// own=gc emits values *V of a type parameter, own=slab words of id and generation.
// writers=locked puts a mutex around each writing method. empty says what happens
// to a node that loses its last entry. for=test, busted=NAME and delay=yes are
// for tests: busted leaves out or moves one line, delay stops the writer there.
type heapTree struct {
	name                 string
	keyBits              int
	split                []int // fixed height
	nodeBits, stressBits int   // dynamic height
	tags                 []tag
	on                   flags
}

// level is one level of a tree of fixed height, the leaves last.
type level struct {
	node, kid   string
	bits, shift int
}

// bustedTrees are the ways in which busted= breaks a tree.
var bustedTrees = []string{
	"recheck",    // ClearTag clears the bits above without a look at the other slots
	"root-first", // growth publishes the new root, then copies the tags
	"slot-first", // Delete clears the slot, then the tags
}

func parseHeapTree(b *block) (*heapTree, error) {
	t := &heapTree{name: b.name, on: flags{}}
	if err := b.allow("key", "own", "writers", "empty", "for", "busted", "delay"); err != nil {
		return t, err
	}
	for _, choice := range [][]string{{"own", "gc", "slab"}, {"writers", "one", "locked"}, {"empty", "keep", "unlink"}} {
		if err := t.choose(b, choice[0], choice[1:]...); err != nil {
			return t, err
		}
	}
	busted, err := parseBusted(b, bustedTrees...)
	if err != nil {
		return t, err
	}
	t.on[busted] = busted != ""
	t.on["delay"] = b.opts["delay"] == "yes"
	if b.name == "V" {
		return t, b.pos.errorf("tree V: V is the type of the values")
	}
	if t.keyBits, err = b.number("key", 2, 64); err != nil {
		return t, err
	}
	if err := b.claim(b.pos, b.name, "New"+b.name, "Err"+b.name+"Key", "Err"+b.name+"Value"); err != nil {
		return t, err
	}
	for _, suffix := range []string{"KeyMax", "Tags", "Tag", "Entry"} {
		if err := b.claim(b.pos, b.name+suffix); err != nil {
			return t, err
		}
	}
	for _, it := range b.items {
		if err := t.parseItem(b, it); err != nil {
			return t, err
		}
	}
	return t, t.complete(b)
}

// choose reads an option that has a few values, and sets the flag of that name.
func (t *heapTree) choose(b *block, key string, values ...string) error {
	value := b.opts[key]
	if !slices.Contains(values, value) {
		return b.pos.errorf("tree %s: %s=%s, want %s", b.name, key, value, strings.Join(values, " or "))
	}
	t.on[value] = true
	return nil
}

// parseBusted reads the options for=, delay= and busted=, which is one of ways.
func parseBusted(b *block, ways ...string) (busted string, err error) {
	v, ok := b.opts["for"]
	if ok && v != "test" {
		return "", b.pos.errorf("tree %s: for=%s, want for=test or nothing", b.name, v)
	}
	busted = b.opts["busted"]
	delay := b.opts["delay"]
	switch {
	case busted != "" && !ok:
		return "", b.pos.errorf("tree %s: busted=%s without for=test", b.name, busted)
	case delay != "" && (delay != "yes" || !ok):
		return "", b.pos.errorf("tree %s: delay=%s, want delay=yes with for=test", b.name, delay)
	case busted != "" && !slices.Contains(ways, busted):
		return "", b.pos.errorf("tree %s: busted=%s, want one of %s", b.name, busted, strings.Join(ways, ", "))
	}
	return busted, nil
}

func (t *heapTree) parseItem(b *block, it item) error {
	switch it.words[0] {
	case "split":
		return t.parseSplit(it)
	case "nodes":
		return t.parseNodes(it)
	case "free":
		if len(it.words) != 1 || t.on["free"] {
			return it.pos.errorf("tree %s: want free once and alone", t.name)
		}
		t.on["free"] = true
		return b.claim(it.pos, "Err"+t.name+"Full", "Err"+t.name+"Taken")
	case "tag":
		tags, err := parseTag(b, it, t.tags)
		t.tags = tags
		return err
	}
	return it.pos.errorf("tree %s: unknown item %q", t.name, it.words[0])
}

func (t *heapTree) parseSplit(it item) error {
	words := it.words[1:]
	if t.split != nil || t.nodeBits != 0 {
		return it.pos.errorf("tree %s: second split", t.name)
	}
	if len(words) < 1 || len(words) > 3 {
		return it.pos.errorf("tree %s: split into %d levels, want 1 to 3", t.name, len(words))
	}
	sum := 0
	for _, word := range words {
		bits, err := number(it.pos, "split", word, 2, 16)
		if err != nil {
			return err
		}
		t.split = append(t.split, bits)
		sum += bits
	}
	if sum != t.keyBits {
		return it.pos.errorf("tree %s: split %s is not the key's %d bits", t.name, strings.Join(words, " + "), t.keyBits)
	}
	return nil
}

func (t *heapTree) parseNodes(it item) error {
	if t.split != nil || t.nodeBits != 0 {
		return it.pos.errorf("tree %s: second split", t.name)
	}
	if len(it.words) < 2 || len(it.words) > 3 {
		return it.pos.errorf("tree %s: want bits of a node, and of one under kpidd_stress, after nodes", t.name)
	}
	var err error
	if t.nodeBits, err = number(it.pos, "nodes", it.words[1], 2, 6); err != nil {
		return err
	}
	t.stressBits, err = number(it.pos, "nodes", it.words[len(it.words)-1], 2, t.nodeBits)
	return err
}

// complete checks what only the whole block tells.
func (t *heapTree) complete(b *block) error {
	t.on["tags"] = len(t.tags) > 0
	t.on["dyn"] = t.nodeBits > 0
	t.on["single"] = len(t.split) == 1
	t.on["bits"] = t.on["tags"] || t.on["free"]
	t.on["takes"] = t.on["unlink"] || t.on["free"] || !t.on["single"]
	t.on["counts"] = t.on["unlink"] || t.on["free"]
	t.on["checked"] = t.keyBits != t.typeBits()
	t.on["ranged"] = t.on["checked"] || t.on["free"]
	switch {
	case t.split == nil && !t.on["dyn"]:
		return b.pos.errorf("tree %s: item split or nodes is missing", t.name)
	case t.on["dyn"] && t.on["keep"]:
		return b.pos.errorf("tree %s: empty=keep with nodes, want empty=unlink", t.name)
	case t.on["dyn"] && t.keyBits < t.nodeBits:
		return b.pos.errorf("tree %s: nodes of %d bits for keys of %d", t.name, t.nodeBits, t.keyBits)
	case t.on["root-first"] && (!t.on["dyn"] || !t.on["tags"]):
		return b.pos.errorf("tree %s: busted=root-first needs nodes and a tag", t.name)
	case t.on["recheck"] && (!t.on["tags"] || t.on["single"]):
		return b.pos.errorf("tree %s: busted=recheck needs a tag and two levels", t.name)
	case t.on["slot-first"] && !t.on["tags"]:
		return b.pos.errorf("tree %s: busted=slot-first needs a tag", t.name)
	}
	return nil
}

// typeBits is the width of the Go type that a key has.
func (t *heapTree) typeBits() int {
	for _, bits := range []int{8, 16, 32} {
		if t.keyBits <= bits {
			return bits
		}
	}
	return 64
}

func (t *heapTree) prefix() string { return strings.ToLower(t.name[:1]) + t.name[1:] }

// levels returns the levels of a tree of fixed height.
func (t *heapTree) levels() []level {
	names := [][]string{{"Leaf"}, {"Top", "Leaf"}, {"Top", "Mid", "Leaf"}}[len(t.split)-1]
	list := make([]level, len(t.split))
	shift := 0
	for i := len(t.split) - 1; i >= 0; i-- {
		list[i] = level{node: t.prefix() + names[i], bits: t.split[i], shift: shift}
		if i+1 < len(list) {
			list[i].kid = list[i+1].node
		}
		shift += t.split[i]
	}
	return list
}

// say returns text when the flag is set, or with !flag not set.
func (t *heapTree) say(flag, text string) string {
	if _, ok := t.on.keep("[" + flag + "]"); !ok {
		return ""
	}
	return text
}

// names are the names of the whole tree.
func (t *heapTree) names() map[string]any {
	names := map[string]any{
		"reserved":   t.say("free", " It must not be reserved either."),
		"orReserved": t.say("free", " or reservation"),
		"andCounts":  t.say("counts", ", counts key in, and ") + t.say("!counts", " and "),
		"fullDoc":    t.say("free", "; full says that it has no room left"),
		"unlinks":    t.say("unlink", ", unlinks a child that is left empty, and\n// says whether n itself is empty now"),
		"T":          t.name,
		"t":          t.prefix(),
		"K":          fmt.Sprintf("uint%d", t.typeBits()),
		"keyBits":    t.keyBits,
		"keyMax":     fmt.Sprintf("1<<%d - 1", t.keyBits),
		"tags":       len(t.tags),
		"any":        "[V any]",
		"P":          "[V]",
		"Val":        "*V",
		"nil":        "nil",
		"Slot":       "atomic.Pointer[V]",
		"absent":     "nil",
		"Field":      "Value",
		"root":       "t.root",
		"leaf":       t.prefix() + "Leaf",
		"where":      "the writer's",
	}
	if t.on["slab"] {
		for name, value := range map[string]any{"any": "", "P": "", "Val": "uint64", "nil": "0", "Slot": "atomic.Uint64", "absent": "0"} {
			names[name] = value
		}
	}
	if t.on["locked"] {
		names["where"] = "guarded by mu"
	}
	if t.on["dyn"] {
		names["bits"], names["stressLess"] = t.nodeBits, t.nodeBits-t.stressBits
		names["root"] = "t.root.Load()"
		names["leafMask"] = "(" + t.prefix() + "Slots - 1)"
	} else {
		names["leafMask"] = 1<<t.split[len(t.split)-1] - 1
		names["top"], names["topSlots"] = t.levels()[0].node, 1<<t.split[0]
	}
	return names
}

func (t *heapTree) writer(more map[string]any) writer {
	names := t.names()
	for name, value := range more {
		names[name] = value
	}
	return newWriter(names)
}

// nodes calls emit once for each kind of node, top down, with what its methods
// are written with. All nodes of a tree of dynamic height share one kind.
func (t *heapTree) nodes(emit func(w writer, on flags)) {
	if t.on["dyn"] {
		all := t.on.with("inner", "leaf", "index")
		emit(t.writer(map[string]any{
			"node": t.prefix() + "Node", "kid": t.prefix() + "Node",
			"index": "uint(key>>n.shift) & (" + t.prefix() + "Slots - 1)",
			"first": "uint((max(from, base) - base) >> n.shift)",
			"step":  "<<n.shift",
			"kids":  "n.inner().child", "slots": "n.leaf().slot", "self": "n.leaf()",
			"words": 1, "fanout": t.prefix() + "Fanout(n.shift)", "all": t.prefix() + "Fanout(n.shift)",
		}), all)
		return
	}
	for i, l := range t.levels() {
		names := map[string]any{
			"node": l.node, "kid": l.kid,
			"index": fmt.Sprintf("uint(key>>%d) & %d", l.shift, 1<<l.bits-1),
			"first": fmt.Sprintf("uint((max(from, base) - base) >> %d)", l.shift),
			"step":  fmt.Sprintf("<<%d", l.shift),
			"kids":  "n.child", "slots": "n.slot", "self": "n",
			"words": max(1, 1<<l.bits/64), "fanout": 1 << l.bits, "all": fmt.Sprintf("uint(%d)", 1<<l.bits),
		}
		if l.kid != "" {
			on := t.on.with("inner", "index")
			names["kidSlots"] = 1 << t.split[i+1]
			emit(t.writer(names), on)
			continue
		}
		names["index"] = fmt.Sprintf("uint(key) & %d", 1<<l.bits-1)
		names["first"] = "uint(max(from, base) - base)"
		names["step"] = ""
		on := t.on.with("leaf")
		on["index"] = t.on["free"]
		emit(t.writer(names), on)
	}
}

func emitHeapTree(f *jen.File, b *block) error {
	t, err := parseHeapTree(b)
	if err != nil {
		return err
	}
	w := t.writer(nil)
	t.emitConsts(f, w)
	t.emitTypes(f, w, b.doc)
	t.emitReaders(f, w)
	t.emitWriters(f, w)
	if t.on["free"] {
		t.emitAlloc(f, w)
	}
	if t.on["bits"] || t.on["counts"] {
		t.emitCheck(f, w)
	}
	return nil
}

func (t *heapTree) emitConsts(f *jen.File, w writer) {
	f.Add(w.text(t.on, `
// Shape of {T}.
const (
	{T}KeyMax = {keyMax} // keys are 0 to {T}KeyMax
	{T}Tags = {tags}
[dyn]
[dyn]	{t}Bits = {bits} - {stressLess}*arch.Stress // of the key that a node looks at
[dyn]	{t}Slots = 1 << {t}Bits
)

// Errors of the writing methods, to be compared with errors.Is.
var (
[ranged]	Err{T}Key = errors.New("radix: key is out of range")
	Err{T}Value = errors.New("radix: value {absent} means absent")
[free]	Err{T}Full = errors.New("radix: no free id in the range")
[free]	Err{T}Taken = errors.New("radix: id is taken")
)`))
	emitTagType(f, w, t.tags)
}
