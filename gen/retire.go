package main

import (
	"math/bits"
	"strings"

	"github.com/dave/jennifer/jen"
)

// emitRetire emits a block of kind "retire": a writer's ring of handles that
// wait for a grace period of an epoch domain above it in the specification.
//
//	retire Writer32 domain=Domain handle=uint32 batch=1024 items=16384 bytes=16777216
//
// batch handles share one grace period; items and bytes bound the backlog.
// Busted variant: tag (a batch is tagged with an epoch from before its unlinks).
func emitRetire(f *jen.File, b *block) error {
	on := flags{}
	if err := b.allow("domain", "handle", "batch", "items", "bytes", "for", "busted"); err != nil {
		return err
	}
	if len(b.items) > 0 {
		return b.items[0].pos.errorf("retire %s has no items, got %q", b.name, b.items[0].words[0])
	}
	if err := b.claim(b.pos, b.name, "New"+b.name); err != nil {
		return err
	}
	if err := b.testFlags(on, "tag"); err != nil {
		return err
	}
	domain := b.opts["domain"]
	above := b.above("epoch", domain)
	if above == nil {
		return b.pos.errorf("retire %s: domain=%s is no epoch domain above", b.name, domain)
	}
	if above.opts["for"] != "" && b.opts["for"] == "" {
		return b.pos.errorf("retire %s: domain=%s is for=test", b.name, domain)
	}
	handle := b.opts["handle"]
	if handle != "uint32" && handle != "uint64" {
		return b.pos.errorf("retire %s: handle=%s, want uint32 or uint64", b.name, handle)
	}
	batch, items, err := b.ring()
	if err != nil {
		return err
	}
	bytes, err := b.number("bytes", 1, 1<<40)
	if err != nil {
		return err
	}
	w := newWriter(map[string]any{
		"W": b.name, "w": lowerFirst(b.name), "D": domain, "P": strings.TrimSuffix(domain, "Domain"),
		"H": handle, "pkg": b.spec.pkg, "batch": batch, "items": items, "bytes": bytes,
		"batchShift": bits.Len(uint(batch)) - 2, "itemsShift": bits.Len(uint(items)) - 3,
	})
	f.Add(w.text(on, retireConsts))
	f.Add(jen.Line().Add(docAbove(b, w, retireHeader)).Add(w.text(on, retireTypes)))
	f.Add(w.text(on, retireMethods))
	return nil
}

// ring returns the options batch and items of a ring: powers of two, and at
// least four batches.
func (b *block) ring() (batch, items int, err error) {
	if batch, err = b.number("batch", 4, 1<<16); err != nil {
		return 0, 0, err
	}
	if items, err = b.number("items", 4*batch, 1<<24); err != nil {
		return 0, 0, err
	}
	for key, n := range map[string]int{"batch": batch, "items": items} {
		if n&(n-1) != 0 {
			return 0, 0, b.pos.errorf("%s %s: %s=%d is no power of two", b.kind, b.name, key, n)
		}
	}
	return batch, items, nil
}

// above returns the block of this kind and name above b, nil if there is none.
func (b *block) above(kind, name string) *block {
	for _, other := range b.spec.blocks {
		if other == b {
			break
		}
		if other.kind == kind && other.name == name {
			return other
		}
	}
	return nil
}

const retireConsts = `
const (
	{w}Batch = {batch} >> ({batchShift} * arch.Stress) // handles that share a grace period
	{w}Items = {items} >> ({itemsShift} * arch.Stress) // handles in the ring, a power of two
	{w}Bytes = {bytes} // memory that may wait
	{w}Marks = 32 // batches that wait, a power of two
)`

const retireHeader = `
{W} holds what one writer has retired until the readers of its domain have left
it: handles of type {H} in a ring. New{W} makes one; the zero value is none, and
it is not copied.

Invariants.

	I1. head <= sealed <= tail <= head + {items}, counted in handles. Below head
	    is reclaimed, below sealed has an epoch, below tail is retired.
	I2. The marks cut head to sealed into batches, oldest first. A batch's epoch
	    was begun after every unlink in it.
	I3. A batch is handed to reclaim once, in the order of Defer, after a grace
	    period of its epoch.
	I4. bytes is the sum over head to tail, at most {bytes}.

Writers and readers. One goroutine at a time; no field is shared. Reclaim runs in
calls of that goroutine and must not call the writer.

Ordering. Defer comes after the unlink of its handle. The seal of a batch
advances the domain's epoch (B of {D}) after that, and from then on the batch
waits for the readers of earlier epochs (C of {D}), whenever they are looked at.

Lifetime. From Defer to reclaim, readers inside a section may use the handle;
the writer must not reuse it. From reclaim on nobody has it.

Progress. Defer is wait-free but for one call in {batch}, which seals the batch
and looks at the readers once, or, when half of what may wait does, for a
bounded time. When readers stay, the backlog stops at its bounds and Defer
returns Err{P}Backlog. Barrier blocks until its context ends.

Source: call_rcu and rcu_barrier of Linux, with the batches of kfree_rcu.`

const retireTypes = `
type {W} struct {
	_       arch.NoCopy
	d       *{D}
	reclaim func(handles []{H})
	items   []{H} // handle n is in n%{w}Items

	head, sealed, tail uint64
	stop               uint64 // where Defer looks up: the batch or the ring is full
	bytes              uint64

	marks       [{w}Marks]{w}Mark // batch n is in n%{w}Marks
	first, last uint64 // batches that wait: first to last-1
	fresh       uint64 // bytes from sealed to tail
}

// {w}Mark is the end of a batch.
type {w}Mark struct {
	end, epoch, bytes uint64
}`

const retireMethods = `
// New{W} returns a writer of the domain. Reclaim gets the handles, in the order
// of Defer, once no reader can have them; it does not keep the slice.
func New{W}(d *{D}, reclaim func(handles []{H})) *{W} {
	return &{W}{d: d, reclaim: reclaim, items: make([]{H}, {w}Items), stop: {w}Batch}
}

// Defer retires a handle that no new reader can find, with the number of bytes
// that wait with it. Err{P}Backlog means that it was not taken, because readers
// hold up too much: Stalls of the domain names them, Barrier waits for them.
func (w *{W}) Defer(handle {H}, bytes uint32) error {
	if w.tail == w.stop || w.bytes+uint64(bytes) > {w}Bytes {
		if err := w.makeRoom(uint64(bytes)); err != nil {
			return err
		}
	}
	w.items[w.tail%{w}Items] = handle
	w.tail++
	w.bytes += uint64(bytes)
	w.fresh += uint64(bytes)
	return nil
}

// makeRoom makes room for one handle, or returns the reason why there is none.
//
//go:noinline
func (w *{W}) makeRoom(bytes uint64) error {
	if err := w.Flush(); err != nil {
		return err
	}
	if w.tail-w.head > {w}Items/2 || w.bytes+bytes > {w}Bytes/2 {
		if oldest := w.marks[w.first%{w}Marks].epoch; !w.d.poll(oldest) {
			w.d.note(oldest)
		}
		w.collect()
	}
	w.stop = min(w.tail+{w}Batch, w.head+{w}Items)
	if w.tail == w.stop || w.bytes+bytes > {w}Bytes {
		return Err{P}Backlog
	}
	return nil
}

// Flush begins a grace period for what was retired since the last one, and
// reclaims what no reader can have. It does not wait.
func (w *{W}) Flush() error {
	err := w.seal()
	w.collect()
	return err
}

// Barrier returns when all that was retired before the call is reclaimed, or
// when ctx ends before, with the error of Synchronize.
func (w *{W}) Barrier(ctx context.Context) error {
	if err := w.seal(); err != nil {
		return err
	}
	if w.first != w.last {
		if err := w.d.wait(ctx, w.marks[(w.last-1)%{w}Marks].epoch); err != nil {
			return err
		}
	}
	w.collect()
	return nil
}

// Backlog returns how many handles wait, and how many bytes with them.
func (w *{W}) Backlog() (items int, bytes uint64) { return int(w.tail - w.head), w.bytes }

// seal makes what was retired since the last seal a batch with an epoch. When all
// marks are taken it joins the newest batch, which then waits for the later epoch.
func (w *{W}) seal() error {
	if w.sealed == w.tail {
		return nil
	}
	epoch, err := w.d.advance()
	if err != nil {
		return err
	}
[tag]	epoch-- // busted: an epoch from before the unlinks
	if w.last-w.first == {w}Marks {
		w.last--
	} else {
		w.marks[w.last%{w}Marks].bytes = 0
	}
	mark := &w.marks[w.last%{w}Marks]
	mark.end, mark.epoch = w.tail, epoch
	mark.bytes += w.fresh
	w.last++
	w.sealed, w.fresh = w.tail, 0
	w.stop = min(w.tail+{w}Batch, w.head+{w}Items)
	return nil
}

// collect reclaims the batches that no reader can have.
func (w *{W}) collect() {
	for ; w.first != w.last; w.first++ {
		mark := &w.marks[w.first%{w}Marks]
		if !w.d.passed(mark.epoch) {
			break
		}
		from, to := w.head%{w}Items, (mark.end-1)%{w}Items+1
		if from < to {
			w.reclaim(w.items[from:to])
		} else {
			w.reclaim(w.items[from:])
			w.reclaim(w.items[:to])
		}
		w.head = mark.end
		w.bytes -= mark.bytes
	}
	w.stop = min(w.sealed+{w}Batch, w.head+{w}Items)
}`
