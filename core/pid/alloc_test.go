package pid

import (
	"errors"
	"slices"
	"testing"

	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// M1.9: errors are the kernel's, and nothing has changed after one (M1.4).
func TestAllocErrors(t *testing.T) {
	f := newFixture(t)
	one := f.alloc(f.ns, 0) // 1
	f.alloc(f.ns, 0)        // 2
	in := f.child(f.ns)
	for _, c := range []struct {
		name  string
		ns    *Namespace
		nrs   []uint32
		may   bool
		errno error
	}{
		{"more than levels", f.ns, []uint32{5, 6}, true, unix.EINVAL},
		{"number 0", f.ns, []uint32{0}, true, unix.EINVAL},
		{"beyond pid_max", f.ns, []uint32{Max}, true, unix.EINVAL},
		{"no number, and not allowed", f.ns, []uint32{0}, false, unix.EINVAL},
		{"not allowed", f.ns, []uint32{50}, false, unix.EPERM},
		{"not allowed, and taken", f.ns, []uint32{1}, false, unix.EPERM},
		{"taken", f.ns, []uint32{2}, true, unix.EEXIST},
		{"2 where there is no 1", in, []uint32{2}, true, unix.EINVAL},
		{"the outer one taken", in, []uint32{1, 2}, true, unix.EEXIST},
		{"the outer one too large", in, []uint32{1, Max}, true, unix.EINVAL},
	} {
		_, err := f.s.Alloc(c.ns, &Request{Numbers: c.nrs, Allowed: c.may, Leader: true})
		wantErr(t, c.name, err, c.errno)
		f.wantList(1, 2)
	}
	ref, err := f.s.Alloc(in, &Request{Numbers: []uint32{1, 100}, Allowed: true, Leader: true})
	wantErr(t, "both levels", err, nil)
	if got := f.s.Numbers(ref.Slot, f.ns, nil); !slices.Equal(got, []uint32{100, 1}) {
		t.Errorf("numbers: got %v, want [100 1]", got)
	}
	f.begin(ref, 0)
	in.Close()
	before := f.ns.numbers
	_, err = f.s.Alloc(in, &Request{})
	wantErr(t, "the reaper is dead", err, unix.ENOMEM)
	if f.ns.numbers != before || f.ns.Find(3) != 0 {
		t.Errorf("M1.4: a number is left of what failed")
	}
	if got := f.alloc(f.ns, 0); f.s.Number(got.Slot, f.ns) != 4 {
		t.Errorf("number after a failure: got %d, want 4: 3 was given back, and the cursor has passed it", f.s.Number(got.Slot, f.ns))
	}
	_ = one
}

// M1.9: EAGAIN when the ids of any level are used up; ENOSPC beyond 32 levels.
func TestAllocExhausted(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	in := f.child(f.ns)
	if err := in.SetMax(301); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "limit of 300", in.SetMax(300), unix.EINVAL)
	wantErr(t, "limit beyond all", in.SetMax(Max+1), unix.EINVAL)
	var refs []Ref
	for range 300 {
		refs = append(refs, f.alloc(in, 0))
	}
	before := f.ns.numbers
	_, err := f.s.Alloc(in, &Request{})
	wantErr(t, "all taken", err, unix.EAGAIN)
	if f.ns.numbers != before {
		t.Errorf("M1.4: numbers in the root: got %d, want %d", f.ns.numbers, before)
	}
	f.end(refs[40]) // 41, reserved low: only the last number is given from now on
	_, err = f.s.Alloc(in, &Request{})
	wantErr(t, "only a low one is free", err, unix.EAGAIN)
	f.end(refs[299])
	if ref := f.alloc(in, 0); f.s.Number(ref.Slot, in) != 300 {
		t.Errorf("got %d, want 300: it waits for no reader", f.s.Number(ref.Slot, in))
	}

	ns := f.ns
	for range LevelsMax {
		ns = f.child(ns)
	}
	_, err = f.s.NewNamespace(ns)
	wantErr(t, "level 33", err, unix.ENOSPC)
	ref := f.alloc(ns, 0)
	numbers := f.s.Numbers(ref.Slot, f.ns, nil)
	if len(numbers) != LevelsMax+1 || slices.Max(numbers[1:]) != 1 {
		t.Errorf("numbers in 33 levels: got %v", numbers)
	}
	for l := ns; l != nil; l = l.parent {
		if l.Find(numbers[l.level]) != ref.Slot || !l.hasTag(numbers[l.level]) {
			t.Errorf("M1.4, M1.5: level %d: number %d leads to slot %d, tagged %v", l.level, numbers[l.level], l.Find(numbers[l.level]), l.hasTag(numbers[l.level]))
		}
	}
}

// Numbers go round; those below 300 are not given in later rounds.
func TestAllocCyclic(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	if err := f.ns.SetMax(310); err != nil {
		t.Fatal(err)
	}
	next := func(want uint32) {
		t.Helper()
		ref := f.alloc(f.ns, 0)
		if got := f.s.Number(ref.Slot, f.ns); got != want {
			t.Fatalf("got number %d, want %d", got, want)
		}
		f.end(ref)
	}
	for nr := uint32(2); nr < 310; nr++ {
		next(nr)
	}
	for range 3 {
		for nr := uint32(300); nr < 310; nr++ {
			next(nr)
		}
	}
	// A requested number moves no cursor.
	ref, err := f.s.Alloc(f.ns, &Request{Numbers: []uint32{7}, Allowed: true})
	wantErr(t, "a low number, requested", err, nil)
	f.begin(ref, 1)
	next(300)
}

// CASES.md B69, B70: numbers in each level; a namespace shows what is in it and
// below, nothing else.
func TestNumbers(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	a := f.child(f.ns)
	b := f.child(a)
	other := f.child(f.ns)
	init := f.alloc(a, 0)   // 2, 1
	inner := f.alloc(b, 0)  // 3, 2, 1
	f.alloc(other, 0)       // 4, 1
	thread := f.alloc(b, 3) // 5, 3, 2
	for _, c := range []struct {
		ref  Ref
		from *Namespace
		want []uint32
	}{
		{init, f.ns, []uint32{2, 1}}, {init, a, []uint32{1}}, {init, b, nil}, {init, other, nil},
		{inner, f.ns, []uint32{3, 2, 1}}, {inner, a, []uint32{2, 1}}, {inner, b, []uint32{1}}, {inner, other, nil},
		{thread, b, []uint32{2}},
	} {
		got := f.s.Numbers(c.ref.Slot, c.from, nil)
		if !slices.Equal(got, c.want) {
			t.Errorf("numbers of slot %d from level %d: got %v, want %v", c.ref.Slot, c.from.level, got, c.want)
		}
		nr := uint32(0)
		if len(c.want) > 0 {
			nr = c.want[0]
			if got := c.from.Find(nr); got != c.ref.Slot {
				t.Errorf("find %d in level %d: got slot %d, want %d", nr, c.from.level, got, c.ref.Slot)
			}
		}
		if got := f.s.Number(c.ref.Slot, c.from); got != nr {
			t.Errorf("number of slot %d in level %d: got %d, want %d", c.ref.Slot, c.from.level, got, nr)
		}
	}
	if !b.In(a) || !b.In(f.ns) || a.In(b) || b.In(other) || !b.In(b) {
		t.Error("In does not tell who is below whom")
	}
	var h table.Hot
	leaders := func(ns *Namespace, from uint32) (nrs []uint32) {
		w := ns.Leaders(from)
		for w.Next(&h) {
			nrs = append(nrs, w.Number())
		}
		return nrs
	}
	for _, c := range []struct {
		ns   *Namespace
		from uint32
		want []uint32
	}{{f.ns, 0, []uint32{1, 2, 3, 4}}, {a, 0, []uint32{1, 2}}, {a, 2, []uint32{2}}, {b, 0, []uint32{1}}, {b, 2, nil}, {other, 0, []uint32{1}}} {
		if got := leaders(c.ns, c.from); !slices.Equal(got, c.want) {
			t.Errorf("leaders of level %d from %d: got %v, want %v", c.ns.level, c.from, got, c.want)
		}
	}
	if !b.Read(2, &h) || h.TID != 5 || h.TGID != 3 {
		t.Errorf("task 2 of the innermost: got task %d of %d, want 5 of 3", h.TID, h.TGID)
	}
	if b.Read(3, &h) || b.Read(^uint32(0), &h) {
		t.Error("a number that nobody has was read")
	}
}

// A namespace lives as long as something refers to it; its handle is used again.
func TestNamespaceLife(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	a := f.child(f.ns)
	b := f.child(a)
	ref := f.alloc(b, 0)
	a.Drop()
	b.Drop()
	want := func(n int) {
		t.Helper()
		if got := f.s.Namespaces(); got != n {
			t.Fatalf("namespaces: got %d, want %d", got, n)
		}
	}
	want(3)
	f.end(ref)
	want(3)
	f.settle()
	want(1)
	if c := f.child(f.ns); c.handle != a.handle && c.handle != b.handle {
		t.Errorf("handle %d, want %d or %d again", c.handle, a.handle, b.handle)
	}
	// The first process was never born: numbers begin at 1 again, or not at all.
	c := f.child(f.ns)
	first, err := f.s.Alloc(c, &Request{Leader: true})
	wantErr(t, "first", err, nil)
	f.s.Free([]uint32{first.Slot})
	_, err = f.s.Alloc(c, &Request{})
	wantErr(t, "after a first process that was not born", err, unix.ENOMEM)
	mustPanic(t, "pid: I1", func() { c.Drop(); f.settle(); c.Drop() })
	mustPanic(t, "pid: I1", c.Hold)
	_, err = f.s.Alloc(c, &Request{})
	wantErr(t, "in a namespace that is gone", err, unix.EINVAL)
	_, err = f.s.NewNamespace(c)
	wantErr(t, "below a namespace that is gone", err, unix.EINVAL)
	_, err = f.s.Alloc(newFixture(t).ns, &Request{})
	wantErr(t, "in a namespace of another space", err, unix.EINVAL)
}

func TestAllocAllocs(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	slots := make([]uint32, 1)
	pair := func() {
		ref, err := f.s.Alloc(f.ns, &Request{Leader: true})
		if err != nil {
			t.Fatal(err)
		}
		f.s.Attach(ref.Slot, PID)
		f.s.Detach(ref.Slot, PID)
		slots[0] = ref.Slot
		f.s.Free(slots)
	}
	for range 5000 {
		pair()
	}
	if got := testing.AllocsPerRun(5000, pair); got != 0 {
		t.Errorf("alloc and free: got %v allocations, want 0", got)
	}
}

func BenchmarkAlloc(b *testing.B) {
	for _, c := range []struct {
		name  string
		level int
	}{{"level=0", 0}, {"level=1", 1}, {"level=3", 3}} {
		b.Run(c.name, func(b *testing.B) {
			f := newFixture(b)
			ns := f.ns
			f.alloc(ns, 0)
			for range c.level {
				ns = f.child(ns)
				f.alloc(ns, 0)
			}
			slots := make([]uint32, 1)
			for b.Loop() {
				ref, err := f.s.Alloc(ns, &Request{Leader: true})
				if err != nil {
					b.Fatal(err)
				}
				slots[0] = ref.Slot
				f.s.Free(slots)
			}
		})
	}
}
