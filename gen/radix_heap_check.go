package main

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"
)

func (t *heapTree) emitCheck(f *jen.File, w writer) {
	f.Add(w.text(t.on, `
// Check walks over the whole tree and returns an error that names the first
// invariant that does not hold. It is for tests and for moments without a writer.
func (t *{T}{P}) Check() error {
[locked]	t.mu.Lock()
[locked]	defer t.mu.Unlock()
	return {root}.check(0)
}`))
	t.nodes(func(w writer, on flags) {
		f.Add(w.text(on, `
// check is Check for the node whose first key is base.
func (n *{node}{P}) check(base {K}) error {
[unlink]	used := int32(0)
	for i := range {all} {
[inner]		at := base | {K}(i){step}
[leaf][!dyn][bits]		at := base | {K}(i)
[dyn]		taken := false
[dyn]		if n.shift == 0 {
[leaf]			absent := {slots}[i].Load() == {nil}
[leaf][tags]			for tag := range n.tags {
[leaf][tags]				if absent && n.tags[tag][i>>6]>>(i&63)&1 != 0 {
[leaf][tags]					return fmt.Errorf("radix: I2: absent key %d has tag %d", at, tag)
[leaf][tags]				}
[leaf][tags]			}
[dyn][free]			taken = n.free[i>>6]>>(i&63)&1 == 0
[leaf][!dyn][free]			taken := n.free[i>>6]>>(i&63)&1 == 0
[leaf][free]			if !absent && !taken {
[leaf][free]				return fmt.Errorf("radix: I5: key %d is present and free", at)
[leaf][free]			}
[dyn][!free]			taken = !absent
[leaf][!dyn][unlink][!free]			taken := !absent
[dyn]		} else {
[inner]			child := {kids}[i].Load()
[inner][tags]			for tag := range n.tags {
[inner][tags]				below := child != nil && !{t}None(child.tags[tag][:])
[inner][tags]				if above := n.tags[tag][i>>6]>>(i&63)&1 != 0; above != below {
[inner][tags]					return fmt.Errorf("radix: I3: tag %d from key %d on: %v above, %v below", tag, at, above, below)
[inner][tags]				}
[inner][tags]			}
[inner][free]			room := child == nil || !{t}None(child.free[:])
[inner][free]			if above := n.free[i>>6]>>(i&63)&1 != 0; above != room {
[inner][free]				return fmt.Errorf("radix: I4: room from key %d on: %v above, %v below", at, above, room)
[inner][free]			}
[inner]			if child != nil {
[inner]				if err := child.check(at); err != nil {
[inner]					return err
[inner]				}
[inner][unlink]				if child.used == 0 {
[inner][unlink]					return fmt.Errorf("radix: I6: empty node from key %d on", at)
[inner][unlink]				}
[inner][unlink]				used++
[inner]			}
[dyn]		}
[leaf][unlink]		if taken {
[leaf][unlink]			used++
[leaf][unlink]		}
	}
[unlink]	if used != n.used {
[unlink]		return fmt.Errorf("radix: I6: node from key %d on counts %d, has %d", base, n.used, used)
[unlink]	}
	return nil
}`))
	})
}

// shapeText says in the header how the levels lie.
func (t *heapTree) shapeText() string {
	if t.on["dyn"] {
		height := (t.keyBits + t.nodeBits - 1) / t.nodeBits
		return fmt.Sprintf("of dynamic height, 1 to %d levels of %d slots", height, 1<<t.nodeBits)
	}
	var fans []string
	for _, bits := range t.split {
		fans = append(fans, fmt.Sprint(1<<bits))
	}
	if len(fans) == 1 {
		return "of one level of " + fans[0] + " slots"
	}
	return fmt.Sprintf("of %d levels of %s slots", len(fans), strings.Join(fans, " times "))
}

// heightText says how many nodes lie on the way to a value.
func (t *heapTree) heightText() string {
	if t.on["dyn"] {
		return fmt.Sprintf("1 to %d nodes", (t.keyBits+t.nodeBits-1)/t.nodeBits)
	}
	if len(t.split) == 1 {
		return "one node"
	}
	return fmt.Sprintf("%d nodes", len(t.split))
}

// header is the doc comment of the type.
func (t *heapTree) header() string {
	w := t.writer(map[string]any{
		"shape":    t.shapeText(),
		"tagsText": tagsText(t.tags),
		"Atomic":   "Slots" + t.say("!single", ", children") + t.say("dyn", ", root") + t.say("tags", ", tag bits"),
		"height":   t.heightText(),
		"calls":    t.say("one", "The writer's calls are") + t.say("locked", "Writers block on mu; their calls are"),
	})
	return w.replace.Replace(strings.Join(t.on.lines(heapHeader), "\n"))
}

const heapHeader = `
[gc]{T} is a radix tree from keys of {keyBits} bits to values *V, {shape},
[slab]{T} is a radix tree from keys of {keyBits} bits to words that hold the id of a slab
[slab]slot (low 32 bits) and its generation (high 32 bits), {shape},
[!free]with {tagsText}. New{T} makes one; the zero value is none, and it is not copied.
[free]with {tagsText} and the allocator's: its keys are ids that it hands out.
[free]New{T} makes one; the zero value is none, and it is not copied.

Invariants.

	I1. A value of {absent} means that its key is absent.
[tags]	I2. A tag is set only on a key that is present.
[tags]	I3. A node's tag bit of a child is set exactly when the tag is set on some key
[tags]	    below that child.
[free]	I4. A node's bit of the allocator is set exactly when some id below is free;
[free]	    where there is no child, all below are. A new root has it on every slot but
[free]	    the first, and on the first only when the old root still had room.
[free]	I5. An id with an entry is not free. One without may be free or reserved.
[unlink]	I6. A node that nothing is in is unlinked from its parent at once; the root
[unlink]	    stays. used counts what is in.
[keep][!single]	I6. A node that was linked stays, be it empty or not.
[dyn]	I7. The height never falls while an entry is in the tree. An entry never lies
[dyn]	    in the root pointer itself. Growth copies every tag to the new root.

[one]Writers and readers. One writer at a time, held together by the caller. Any
[locked]Writers and readers. Any number of writers, which hold mu inside each call. Any
number of readers without a lock, who store nothing. {Atomic} are atomic,
the rest is {where}.
[tags]While a writer is inside a call, I2 and I3 hold in one direction only: a set bit may
[tags]be stale, a clear bit hides no entry that was tagged before the reader began and
[tags]stays so.

Ordering.

[dyn]	A. The store of a new root (release) comes after its first child and its tags.
[dyn]	   Pairs with the readers' load of the root, which comes first.
[!single]	B. The store of a child (release) comes after its own fields were set. Pairs
[!single]	   with the readers' load of it, before anything of the node.
	C. The store of a value (release) comes after all that the value names. Pairs
	   with D: a reader that got the value sees that.
[tags]	D. Readers load the value after its tag bit (acquire).
[!tags]	D. Readers load the value (acquire).
[tags]	E. The store of a leaf's tag bit comes after C, that of a parent's bit after its
[tags]	   child's. Pairs with F: a reader that saw the bit finds what it stands for,
[tags]	   unless it was cleared since.
[tags]	F. Readers load a node's tag bits after its parent's.
[tags]	G. Clearing goes the same way up, a parent's bit when its node has none left,
[tags]	   and then comes the value, so what is lost first is the entry's tag.
[unlink]	H. The store that unlinks a node comes after the value of its last entry was
[unlink]	   cleared: a reader still in the node finds there what was true then.

Stale reads. A lookup yields the value at some moment of the call. A walk
[tags](All, Gang, GangAll, NextTagged) reports each entry that is there, and tagged,
[!tags](All, GangAll) reports each entry that is there
throughout the walk exactly once and in order of the keys; others may be reported
[tags]or not, and a key whose entry was replaced during the walk may come without the tag.
[!tags]or not.

[gc]Lifetime. A reader may keep a value as long as it likes: the garbage collector owns
[gc]values and nodes, so reading costs nothing more. A key can be deleted and inserted
[gc]again between any two loads of a reader; who needs the same life of a key compares
[gc]what the values say of themselves.
[slab]Lifetime. Nodes belong to the garbage collector, what the values name does not: a
[slab]reader looks up and uses a value inside one epoch section, and a slot is reused only
[slab]after a grace period that began after its Delete, with a new generation. A key can be
[slab]deleted and inserted again between any two loads of a reader.

Progress. Readers are wait-free: a lookup visits {height}, a walk each slot once at most. {calls} bounded by the
height times the words of a node's bits.

Source: the tagged radix tree and the IDR of Linux (lib/radix-tree.c, lib/idr.c).`
