package main

import "github.com/dave/jennifer/jen"

// emitSRCU emits a block of kind "srcu": a domain of sleepable read-copy-update
// whose readers count the sections that they begin and end.
//
//	srcu Domain slots=16 spins=64 yields=64
//
// Busted variant: flip (one flip of the index in place of two).
func emitSRCU(f *jen.File, b *block) error {
	d, err := parseDomain(b, "flip")
	if err != nil {
		return err
	}
	d.on["srcu"] = true
	d.names["arg"] = "index"
	d.emit(f, b, srcuConsts, srcuHeader, srcuTypes, srcuMethods)
	return nil
}

const srcuConsts = `
const (
	{d}Slots    = {slots} // reader slots are allocated so many at a time
	{d}Spins    = {spins}>>(6*arch.Stress) + 1 // looks with a pause after each
	{d}Yields   = {yields}>>(6*arch.Stress) + 1 // looks with a yield after each
	{d}PauseMin = 50 * time.Microsecond // sleep between later looks
	{d}PauseMax = 2 * time.Millisecond
)

// Err{P}Section is the error of a Synchronize that would wait for its caller, to
// be compared with errors.Is.
var Err{P}Section = errors.New("{pkg}: wait for readers inside a read section of the same domain")`

const srcuHeader = `
{D} tells when every reader that could still see something has left its
read-side critical section, for readers that may block and sections that may
nest (sleepable RCU). New{D} makes one; the zero value is none, and it is not
copied. Domains do not wait for each other's readers.

Invariants.

	I1. Each slot counts, per index 0 and 1, the sections begun and the
	    sections ended. Both only grow; ended is never more than begun.
	I2. Only the slot's reader stores its counters.
	I3. The list of slots grows and never shrinks. A slot is reused by later
	    readers, which go on with its counters, never freed.
	I4. A grace period is over when it has seen, after its fence, each slot with
	    as many sections ended as begun, for both indexes.
	I5. Slots begin at multiples of a cache line and fill one.

Writers and readers. A reader handle belongs to one goroutine at a time. Grace
periods run one after the other. Register and Unregister take a mutex.

Ordering.

	A. ReadLock stores the count of sections begun before the loads of the
	   section, of which those that find something are atomic. Pairs with C.
	B. A grace period comes after the unlink that it is for, and fences.
	C. A grace period loads the counts of sections begun after B. Of A and the
	   section's loads on one side, the unlink and C on the other, one side
	   sees the other. On amd64 A is a plain store and membarrier(2) at B is
	   the fence of all readers; without membarrier(2), and elsewhere, A is an
	   atomic store.
	D. ReadUnlock stores the count of sections ended after the loads of the
	   section (release). Pairs with E.
	E. A grace period loads the count of sections ended before that of those
	   begun (C): an end that it saw brings its beginning along.

New readers count on the index that is current; a grace period flips it, so that
they do not keep it waiting, and waits for the other one. A reader that read
the index, was stopped, and counts late, counts on the one that was waited for
before: for it the index is flipped, and waited for, a second time.

What a reader sees. Everything that it finds inside a section stays what it was
found as until ReadUnlock. Something unlinked before ReadLock may not be found.

Lifetime. Nothing found inside a section may be used after it. What was unlinked
is reclaimed after a grace period that began after the unlink.

Progress. ReadLock and ReadUnlock are wait-free. Synchronize blocks until the
readers of that moment have left or its context ends: {spins} looks with a pause,
{yields} with a yield, then it sleeps between looks. Stalls names who is in its way.

Source: McKenney, "Sleepable RCU" (2006), with the counters of Linux's srcutree.c.`

const srcuTypes = `
type {D} struct {
	current atomic.Uint64 // its low bit is the index of new sections; atomic
	_       arch.Pad
	slots   atomic.Pointer[[]*{d}Slot] // atomic; stored under mu
	grace   chan struct{}              // immutable; full while a grace period runs

	membarrier bool // immutable: grace periods fence for the readers

	mu      sync.Mutex
	readers []*{P}Reader // of the slot with the same index; nil: free
}

// {d}Slot is a reader's cache line. Atomic; stored by the reader.
type {d}Slot struct {
	begun [2][2]uint64 // per index: sections begun, goroutine of the last
	ended [2]uint64    // per index
	_     [arch.CacheLine - 48]byte
}

// {P}Reader is a reader's handle. One goroutine uses it at a time, and ends the
// sections that it began.
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

const srcuMethods = `
// ReadLock begins a read-side critical section and returns the index that
// ReadUnlock takes. The section may block, and others may nest in it.
func (r *{P}Reader) ReadLock() (index uint64) {
	index = r.d.current.Load() & 1
[delay]	{d}Delay()
	arch.IncrementOwned(&r.slot.begun[index]) // A
	return index
}

// ReadUnlock ends the section that ReadLock returned index for. Nothing found in
// it is used from here on.
func (r *{P}Reader) ReadUnlock(index uint64) {
	ended := &r.slot.ended[index]
	if arch.Invariants && *ended == r.slot.begun[index][0] {
		panic("{pkg}: I1: ReadUnlock outside a read section")
	}
	arch.StoreRelease64(ended, *ended+1) // D
}

func (r *{P}Reader) inside() bool {
	_, zero := r.slot.section(0)
	_, one := r.slot.section(1)
	return zero || one
}

// section returns what tells the sections of the slot's reader on index from
// later ones, and whether there are any.
func (s *{d}Slot) section(index uint64) (id uint64, inside bool) {
	ended := atomic.LoadUint64(&s.ended[index])    // E
	begun := atomic.LoadUint64(&s.begun[index][0]) // C
	return ended<<1 | index, ended != begun
}

// still reports whether no section has ended since section returned id, so that
// the one that was open then is open now.
func (s *{d}Slot) still(id uint64) bool {
	now, inside := s.section(id & 1)
	return inside && now == id
}

func (s *{d}Slot) owner(index uint64) uint64 { return atomic.LoadUint64(&s.begun[index][1]) }

// Synchronize returns when every section that had begun before the call has
// ended. What the caller unlinked before is then unseen. An error means that it
// is not: ctx ended (the error names the reader), membarrier(2) failed, or
// Err{P}Section: the caller is inside such a section. The last is told in builds
// with assembly or invariants.
func (d *{D}) Synchronize(ctx context.Context) error {
	if d.own(0) || d.own(1) {
		return Err{P}Section
	}
	select {
	case d.grace <- struct{}{}:
		defer func() { <-d.grace }()
	case <-ctx.Done():
		return d.stalled(ctx.Err())
	}
	if d.membarrier {
		if err := arch.Membarrier(); err != nil { // B
			return fmt.Errorf("{pkg}: membarrier: %w", err)
		}
	}
[!flip]	for range 2 {
[flip]	for range 1 {
		index := (d.current.Add(1) - 1) & 1 // B, without membarrier(2)
		if d.passed(index) {
			continue
		}
		if err := d.wait(ctx, index); err != nil {
			return err
		}
	}
	return nil
}`
