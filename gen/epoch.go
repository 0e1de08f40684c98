package main

import "github.com/dave/jennifer/jen"

// emitEpoch emits a block of kind "epoch": a domain of read-copy-update whose
// readers are told by the epoch that they entered in.
//
//	epoch Domain slots=16 spins=64 yields=64
//
// Busted variants: barrier (no membarrier), scan (one epoch too early).
func emitEpoch(f *jen.File, b *block) error {
	d, err := parseDomain(b, "barrier", "scan")
	if err != nil {
		return err
	}
	if err := b.claim(b.pos, "Err"+d.names["P"].(string)+"Backlog"); err != nil {
		return err
	}
	d.on["epoch"] = true
	d.names["arg"] = "target"
	d.emit(f, b, epochConsts, epochHeader, epochTypes, epochMethods)
	return nil
}

const epochConsts = `
const (
	{d}Slots    = {slots} // reader slots are allocated so many at a time
	{d}Spins    = {spins}>>(6*arch.Stress) + 1 // looks with a pause after each
	{d}Yields   = {yields}>>(6*arch.Stress) + 1 // looks with a yield after each
	{d}PauseMin = 50 * time.Microsecond // sleep between later looks
	{d}PauseMax = 2 * time.Millisecond
)

// Errors of {D}, to be compared with errors.Is.
var (
	Err{P}Section = errors.New("{pkg}: wait for readers inside a read section of the same domain")
	Err{P}Backlog = errors.New("{pkg}: readers hold up more than may be retired")
)`

const epochHeader = `
{D} tells when every reader that could still see something has left its
read-side critical section (RCU). New{D} makes one; the zero value is none, and
it is not copied.

Invariants.

	I1. The epoch begins at 1 and grows by one with each grace period; 64 bits
	    do not wrap in the life of a machine.
	I2. A slot holds 0 while its reader is outside, else an epoch that was the
	    domain's at some moment after the reader last was outside.
	I3. The list of slots grows and never shrinks. A slot is reused by later
	    readers, never freed.
	I4. A grace period of epoch e is over when every slot holds 0 or at least e.
	I5. Slots begin at multiples of a cache line and fill one.

Writers and readers. A reader handle belongs to one goroutine at a time and is
the only writer of its slot. Grace periods run at once in any number of
goroutines. Register and Unregister take a mutex.

Ordering.

	A. Enter stores the epoch in the slot before the loads of the section, of
	   which those that find something are atomic. Pairs with C.
	B. A grace period advances the epoch after the unlink that it is for.
	   Pairs with the load in Enter: a reader that got the new epoch does not
	   find what was unlinked.
	C. A grace period loads the slots after B. Of A and the section's loads on
	   one side, the unlink and C on the other, one side sees the other: a
	   reader that C misses does not find what was unlinked. On amd64 A is a
	   plain store and membarrier(2) between B and C is the fence of all
	   readers; without membarrier(2), and elsewhere, A is an atomic store.
	D. Exit stores 0 after the loads of the section (release). Pairs with C: what
	   is done after a grace period does not reach into the section.

A reader that registers after C has loaded the list of slots enters after it, and
does not find what was unlinked.
A reader that loaded the epoch, was stopped, and stores it late, is waited for
by grace periods that need not; it is never missed.

What a reader sees. Everything that it finds inside a section stays what it was
found as until Exit. Something unlinked before Enter may not be found.

Lifetime. Nothing found inside a section may be used after Exit. Retired
handles are reused after a grace period that began after the unlink.

Progress. Enter and Exit are wait-free. Synchronize blocks until the readers of
that moment have left or its context ends: {spins} looks with a pause, {yields} with a
yield, then it sleeps between looks. Stalls names who is in its way.

Source: Fraser, "Practical lock-freedom" (2004), epochs; McKenney, RCU of Linux;
Desnoyers, sys_membarrier of Linux 4.14.`

const epochTypes = `
type {D} struct {
	epoch atomic.Uint64 // atomic
	_     arch.Pad
	slots atomic.Pointer[[]*{d}Slot] // atomic; stored under mu

	membarrier bool // immutable: grace periods fence for the readers

	mu      sync.Mutex
	readers []*{P}Reader // of the slot with the same index; nil: free
}

// {d}Slot is a reader's cache line: its epoch or 0, and its goroutine. Atomic;
// stored by the reader.
type {d}Slot struct {
	in [2]uint64
	_  [arch.CacheLine - 16]byte
}

// {P}Reader is a reader's handle. One goroutine uses it at a time, and ends the
// section that it began.
type {P}Reader struct {
	_      arch.NoCopy
	d      *{D}
	slot   *{d}Slot // nil after Unregister

	index int // of slot
	label string

	// Guarded by d.mu: the section that holds up a grace period, and since when.
	held  uint64
	since time.Time
}`

const epochMethods = `
// Enter begins a read-side critical section. Sections of one handle do not nest.
func (r *{P}Reader) Enter() {
	if arch.Invariants && r.inside() {
		panic("{pkg}: I2: Enter inside a read section")
	}
	epoch := r.d.epoch.Load() // B
[delay]	{d}Delay()
	arch.StoreOwned(&r.slot.in, epoch) // A
}

// Exit ends the section. Nothing found in it is used from here on.
func (r *{P}Reader) Exit() {
	if arch.Invariants && !r.inside() {
		panic("{pkg}: I2: Exit outside a read section")
	}
	arch.StoreRelease64(&r.slot.in[0], 0) // D
}

func (r *{P}Reader) inside() bool { return atomic.LoadUint64(&r.slot.in[0]) != 0 }

// section returns the section that the slot's reader is in, and whether a grace
// period of epoch target waits for it.
func (s *{d}Slot) section(target uint64) (epoch uint64, inside bool) {
	epoch = atomic.LoadUint64(&s.in[0]) // C
	return epoch, epoch != 0 && epoch < target
}

// still reports whether the slot's reader is in the section that began in epoch.
func (s *{d}Slot) still(epoch uint64) bool { return atomic.LoadUint64(&s.in[0]) == epoch }

func (s *{d}Slot) owner(uint64) uint64 { return atomic.LoadUint64(&s.in[1]) }

// advance begins a grace period and returns its epoch: the readers have passed
// when none is in a section of an earlier one.
func (d *{D}) advance() (target uint64, err error) {
[!scan]	target = d.epoch.Add(1) // B
[scan]	target = d.epoch.Add(1) - 1 // B, busted: waits for the readers of the epoch before
	if d.membarrier {
[!barrier]		err = arch.Membarrier() // between B and C
	}
	if err != nil {
		return target, fmt.Errorf("{pkg}: membarrier: %w", err)
	}
	return target, nil
}

// Synchronize returns when every section that had begun before the call has
// ended. What the caller unlinked before is then unseen. An error means that it
// is not: ctx ended (the error names the reader), membarrier(2) failed, or
// Err{P}Section: the caller is inside such a section. The last is told in builds
// with assembly or invariants.
func (d *{D}) Synchronize(ctx context.Context) error {
	target, err := d.advance()
	if err != nil || d.passed(target) {
		return err
	}
	return d.wait(ctx, target)
}`
