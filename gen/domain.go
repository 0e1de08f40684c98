package main

import (
	"strings"

	"github.com/dave/jennifer/jen"
)

// domain is what blocks of kind "epoch" and "srcu" share: readers with slots of
// their own, and a grace period that waits for them.
//
//	epoch Domain slots=16 spins=64 yields=64
//
// slots is how many reader slots are allocated at a time; a grace period looks
// again spins times with a pause and yields times with a yield before it sleeps.
// The name ends in Domain; what stands before it begins the other names. for=test
// puts the type into a _test.go file; there busted=LINE leaves out or moves one
// line, and delay=yes calls a function of the test at the place that matters.
type domain struct {
	on    flags
	names map[string]any
}

// parseDomain reads the options that both kinds have, and the busted variants
// that this one knows.
func parseDomain(b *block, busted ...string) (domain, error) {
	d := domain{on: flags{}}
	if err := b.allow("slots", "spins", "yields", "for", "busted", "delay"); err != nil {
		return d, err
	}
	prefix, ok := strings.CutSuffix(b.name, "Domain")
	if !ok {
		return d, b.pos.errorf("%s %s: the name does not end in Domain", b.kind, b.name)
	}
	if len(b.items) > 0 {
		return d, b.items[0].pos.errorf("%s %s has no items, got %q", b.kind, b.name, b.items[0].words[0])
	}
	if err := b.claim(b.pos, b.name, "New"+b.name, prefix+"Reader", prefix+"Stall", "Err"+prefix+"Section"); err != nil {
		return d, err
	}
	if err := b.testFlags(d.on, busted...); err != nil {
		return d, err
	}
	d.names = map[string]any{"D": b.name, "d": lowerFirst(b.name), "P": prefix, "pkg": b.spec.pkg}
	for _, c := range []struct {
		key string
		max int
	}{{"slots", 1 << 10}, {"spins", 1 << 16}, {"yields", 1 << 16}} {
		n, err := b.number(c.key, 1, c.max)
		if err != nil {
			return d, err
		}
		d.names[c.key] = n
	}
	return d, nil
}

// testFlags reads the options for=test, busted=LINE and delay=yes into on.
func (b *block) testFlags(on flags, busted ...string) error {
	where, isFor := b.opts["for"]
	if isFor && where != "test" {
		return b.pos.errorf("%s %s: for=%s, want for=test or nothing", b.kind, b.name, where)
	}
	if delay, ok := b.opts["delay"]; ok {
		if delay != "yes" {
			return b.pos.errorf("%s %s: delay=%s, want delay=yes or nothing", b.kind, b.name, delay)
		}
		on["delay"] = true
	}
	if name, ok := b.opts["busted"]; ok {
		known := false
		for _, line := range busted {
			known = known || line == name
		}
		if !known {
			return b.pos.errorf("%s %s: busted=%s, want one of %s", b.kind, b.name, name, strings.Join(busted, ", "))
		}
		on[name] = true
	}
	if len(on) > 0 && !isFor {
		return b.pos.errorf("%s %s: busted and delay are for=test", b.kind, b.name)
	}
	return nil
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// Both kinds are emitted in five parts: constants, header and types, handles,
// sections and grace period, waiting. The first, second and fourth are the kind's
// own.
func (d domain) emit(f *jen.File, b *block, consts, header, types, methods string) {
	w := newWriter(d.names)
	f.Add(w.text(d.on, consts))
	f.Add(jen.Line().Add(docAbove(b, w, header)).Add(w.text(d.on, types)))
	f.Add(w.text(d.on, handleText))
	f.Add(w.text(d.on, methods))
	f.Add(w.text(d.on, waitText))
}

// docAbove returns the block's own comment and the header below it.
func docAbove(b *block, w writer, header string) *jen.Statement {
	note := w.note(header)
	if len(b.doc) > 0 {
		note = comment(append(b.doc, "")).Line().Add(note)
	}
	return note
}

const handleText = `
// New{D} returns a domain without readers.
func New{D}() *{D} {
	d := &{D}{membarrier: arch.HasMembarrier()}
	d.slots.Store(new([]*{d}Slot))
[epoch]	d.epoch.Store(1)
[srcu]	d.grace = make(chan struct{}, 1)
	return d
}

// Register returns the handle of a new reader. The label names it in reports
// about stalled readers.
func (d *{D}) Register(label string) *{P}Reader {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.readers, nil)
	if i < 0 {
		i = d.growLocked()
	}
	r := &{P}Reader{d: d, slot: (*d.slots.Load())[i], index: i, label: label}
	d.readers[i] = r
	return r
}

// growLocked adds free slots and returns the index of the first.
func (d *{D}) growLocked() int {
	old := *d.slots.Load()
	grown := slices.Clone(old)
	chunk := arch.Aligned[{d}Slot]({d}Slots)
	for i := range chunk {
		grown = append(grown, &chunk[i])
	}
	d.slots.Store(&grown)
	d.readers = append(d.readers, make([]*{P}Reader, {d}Slots)...)
	return len(old)
}

// Unregister gives the handle's slot back. The handle must be outside a section
// and is not used again.
func (r *{P}Reader) Unregister() {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.inside() {
		panic("{pkg}: I2: Unregister inside a read section")
	}
	r.d.readers[r.index] = nil
	r.slot = nil
}`

const waitText = `
// passed reports whether no reader is inside a section that the grace period
// waits for.
func (d *{D}) passed({arg} uint64) bool {
	for _, s := range *d.slots.Load() {
		if _, inside := s.section({arg}); inside {
			return false
		}
	}
	return true
}

// poll is passed, tried again for a bounded time.
func (d *{D}) poll({arg} uint64) bool {
	for range {d}Spins {
		if d.passed({arg}) {
			return true
		}
		arch.Pause()
	}
	for range {d}Yields {
		if d.passed({arg}) {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// wait returns when the readers have passed, or an error when ctx ends before or
// the caller waits for itself.
//
//go:noinline
func (d *{D}) wait(ctx context.Context, {arg} uint64) error {
	if d.poll({arg}) {
		return nil
	}
	if d.own({arg}) {
		return Err{P}Section
	}
	for pause := {d}PauseMin; ; pause = min(2*pause, {d}PauseMax) {
		d.note({arg})
		select {
		case <-ctx.Done():
			return d.stalled(ctx.Err())
		case <-time.After(pause):
		}
		if d.passed({arg}) {
			return nil
		}
	}
}

// own reports whether the calling goroutine is inside a section that the grace
// period waits for.
func (d *{D}) own({arg} uint64) bool {
	for _, s := range *d.slots.Load() {
		if _, inside := s.section({arg}); inside {
			self := arch.Goroutine()
			if self != 0 && self == s.owner({arg}) {
				return true
			}
		}
	}
	return false
}

// note remembers which sections hold up the grace period, and since when.
func (d *{D}) note({arg} uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for i, s := range *d.slots.Load() {
		r := d.readers[i]
		if id, inside := s.section({arg}); inside && r != nil && (r.held != id || r.since.IsZero()) {
			r.held, r.since = id, now
		}
	}
}

// {P}Stall is a reader that holds up a grace period.
type {P}Stall struct {
	Label string        // given to Register
	Age   time.Duration // how long a grace period has seen it in one section
}

// Stalls returns the readers that have held up a grace period for at least age,
// the oldest first. A section is noticed when a grace period waits for it; one
// that nobody waits for is none.
func (d *{D}) Stalls(age time.Duration) []{P}Stall {
	d.mu.Lock()
	defer d.mu.Unlock()
	var stalls []{P}Stall
	now := time.Now()
	for i, s := range *d.slots.Load() {
		r := d.readers[i]
		if r == nil || r.since.IsZero() || !s.still(r.held) || now.Sub(r.since) < age {
			continue
		}
		stalls = append(stalls, {P}Stall{r.label, now.Sub(r.since)})
	}
	slices.SortFunc(stalls, func(a, b {P}Stall) int { return int(b.Age - a.Age) })
	return stalls
}

// stalled returns cause with the reader that has been waited for longest.
func (d *{D}) stalled(cause error) error {
	stalls := d.Stalls(0)
	if len(stalls) == 0 {
		return fmt.Errorf("{pkg}: wait for readers: %w", cause)
	}
	return fmt.Errorf("{pkg}: wait for reader %q, inside for %v: %w", stalls[0].Label, stalls[0].Age, cause)
}`
