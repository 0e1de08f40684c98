package main

import "github.com/dave/jennifer/jen"

// emitSeqcount emits a block of kind "seqcount": a sequence count by itself, for
// data of any shape.
//
//	seqcount Count spins=64 yields=256
//
// Busted variant: retry (a reader never finds that the count moved).
func emitSeqcount(f *jen.File, b *block) error {
	on := flags{}
	if err := b.allow("spins", "yields", "for", "busted"); err != nil {
		return err
	}
	if len(b.items) > 0 {
		return b.items[0].pos.errorf("seqcount %s has no items, got %q", b.name, b.items[0].words[0])
	}
	if err := b.claim(b.pos, b.name); err != nil {
		return err
	}
	if err := b.testFlags(on, "retry"); err != nil {
		return err
	}
	spins, err := b.number("spins", 1, 1<<16)
	if err != nil {
		return err
	}
	yields, err := b.number("yields", 1, 1<<16)
	if err != nil {
		return err
	}
	w := newWriter(map[string]any{
		"C": b.name, "c": lowerFirst(b.name), "pkg": b.spec.pkg, "spins": spins, "yields": yields,
	})
	f.Add(w.text(on, `
const (
	{c}Spins  = {spins} // looks with a pause before each
	{c}Yields = {yields} // looks with a yield to other goroutines before each
)`))
	f.Add(jen.Line().Add(docAbove(b, w, seqcountHeader)).Add(w.text(on, seqcountText)))
	return nil
}

const seqcountHeader = `
{C} is a sequence count: it tells readers whether a writer section came between
two points of theirs. The zero value is ready for use; it is not copied.

Invariants.

	I1. The count is odd inside a writer section, else even.
	I2. The count grows by 2 with each section and never comes back (64 bits do
	    not wrap in the life of a machine).
	I3. A reader whose ReadRetry is false has read what no writer section
	    changed since its ReadBegin.

Writers and readers. One writer section at a time, held together by the
caller's lock; Begin inside a section and End outside one are a panic. Any number
of readers, which store nothing. The count is atomic. The data are the caller's:
written inside sections, read between ReadBegin and ReadRetry, by atomic
accesses on both sides.

Ordering.

	A. Begin stores the odd count before the writer's stores. Pairs with B: a
	   reader that got any of them finds the count moved.
	B. ReadRetry loads the count after the reader's loads.
	C. End stores the even count after the writer's stores (release). Pairs with
	   D: a reader that saw it gets those stores.
	D. ReadBegin loads the count before the reader's loads (acquire).

A racing reader may see any mixture of old and new data before ReadRetry tells
it so; it must not act on them, nor follow them where they would do harm.

Lifetime. The count says nothing about memory: a reader must be able to load what
it follows even when ReadRetry will say true.

Progress. Begin, End and ReadRetry are wait-free. ReadBegin is bounded by
1 + {spins} + {yields} looks; how often a reader starts again is up to the caller.

Source: the seqcount_t of Linux; Boehm, "Can seqlocks get along with programming
language memory models?" (2012).`

const seqcountText = `
type {C} struct {
	_   arch.NoCopy
	seq atomic.Uint64
}

// ReadBegin begins a read and returns the count for ReadRetry. An odd one means
// unstable: a writer stayed inside its section, or sections followed each other,
// for the whole of the bound. Nothing can be read now, and ReadRetry says so.
func (c *{C}) ReadBegin() (seq uint64) {
	if seq = c.seq.Load(); seq&1 != 0 { // D
		return c.wait()
	}
	return seq
}

// wait returns the count once it is even, or what it was in the last look.
//
//go:noinline
func (c *{C}) wait() (seq uint64) {
	for range {c}Spins {
		arch.Pause()
		if seq = c.seq.Load(); seq&1 == 0 { // D
			return seq
		}
	}
	for range {c}Yields {
		runtime.Gosched()
		if seq = c.seq.Load(); seq&1 == 0 { // D
			return seq
		}
	}
	return seq
}

// ReadRetry reports whether a writer section has begun since ReadBegin returned
// seq, or seq is odd: what was read since is worth nothing.
func (c *{C}) ReadRetry(seq uint64) bool {
[!retry]	return seq&1 != 0 || c.seq.Load() != seq // B
[retry]	return seq&1 != 0 // B, busted: does not look again
}

// Begin begins a writer section. The caller holds what makes it the only one.
func (c *{C}) Begin() {
	if c.seq.Add(1)&1 == 0 { // A
		panic("{pkg}: I1: Begin inside a writer section")
	}
}

// End ends the writer section.
func (c *{C}) End() {
	if c.seq.Add(1)&1 != 0 { // C
		panic("{pkg}: I1: End outside a writer section")
	}
}`
