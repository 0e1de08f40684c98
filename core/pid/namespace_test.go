package pid

import (
	"context"
	"errors"
	"testing"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// fixture is a space over a table in memory, and its root namespace.
type fixture struct {
	testing.TB
	w  *table.Writer
	s  *Space
	ns *Namespace
}

func newFixture(tb testing.TB) *fixture {
	w, err := table.NewAnonymous()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { w.Close() })
	s := NewSpace(w)
	return &fixture{tb, w, s, s.Root()}
}

// attach gives nr to a new task of group tgid, as the kernel chose it.
func (f *fixture) attach(nr, tgid uint32) (slot uint32) {
	f.Helper()
	ref, err := f.s.NewSlot()
	if err != nil {
		f.Fatal(err)
	}
	f.w.Put(ref.Slot, &table.Hot{TID: nr, TGID: tgid, Gen: ref.Gen})
	if err := f.s.Insert(ref, nr, nr == tgid); err != nil {
		f.Fatal(err)
	}
	return ref.Slot
}

func (f *fixture) detach(nr uint32) { f.s.FreeNow([]uint32{f.ns.Find(nr)}) }

// alloc makes a process in ns, or a thread of group tgid, and attaches it.
func (f *fixture) alloc(ns *Namespace, tgid uint32) Ref {
	f.Helper()
	ref, err := f.s.Alloc(ns, &Request{Leader: tgid == 0})
	if err != nil {
		f.Fatal(err)
	}
	f.begin(ref, tgid)
	return ref
}

// begin attaches a task to a pid object.
func (f *fixture) begin(ref Ref, tgid uint32) {
	nr := f.s.Number(ref.Slot, f.ns)
	f.s.Attach(ref.Slot, PID)
	if tgid == 0 {
		tgid = nr
		f.s.Attach(ref.Slot, TGID)
	}
	f.w.Put(ref.Slot, &table.Hot{TID: nr, TGID: tgid, Gen: ref.Gen})
	if ns := f.s.NamespaceOf(ref.Slot); ns.Reaper() == 0 {
		ns.SetReaper(ref.Slot)
	}
}

// end is the release of a task whose pid has no other user.
func (f *fixture) end(ref Ref) {
	f.Helper()
	var h table.Hot
	f.w.Get(ref.Slot, &h)
	if h.TGID == h.TID {
		f.s.Detach(ref.Slot, TGID)
	}
	h.TID = 0
	f.w.Put(ref.Slot, &h)
	if !f.s.Detach(ref.Slot, PID) {
		f.Fatalf("slot %d has users left", ref.Slot)
	}
	f.s.Free([]uint32{ref.Slot})
}

func (f *fixture) child(parent *Namespace) *Namespace {
	f.Helper()
	ns, err := f.s.NewNamespace(parent)
	if err != nil {
		f.Fatal(err)
	}
	return ns
}

func (f *fixture) settle() {
	f.Helper()
	if err := f.s.Settle(context.Background()); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) list() (leaders []uint32) {
	var h table.Hot
	for w := f.ns.Leaders(0); w.Next(&h); {
		leaders = append(leaders, h.TID)
	}
	return leaders
}

func (f *fixture) wantList(want ...uint32) {
	f.Helper()
	got := f.list()
	if len(got) != len(want) {
		f.Fatalf("leaders: got %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			f.Fatalf("leaders: got %v, want %v", got, want)
		}
	}
}

func TestInsert(t *testing.T) {
	f := newFixture(t)
	slot := f.attach(5, 5)
	for _, c := range []struct {
		name   string
		nr     uint32
		errno  error
		leader bool
	}{
		{"number 0", 0, unix.EINVAL, true},
		{"beyond all numbers", Max, unix.EINVAL, true},
		{"far beyond", ^uint32(0), unix.EINVAL, false},
		{"taken", 5, unix.EEXIST, true},
		{"taken, by a thread", 5, unix.EEXIST, false},
		{"the largest", Max - 1, nil, true},
	} {
		ref, err := f.s.NewSlot()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.s.Insert(ref, c.nr, c.leader); !errors.Is(err, c.errno) || (err == nil) != (c.errno == nil) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.errno)
		} else if err != nil {
			f.s.PutBack(ref)
		} else if got := f.ns.Find(c.nr); got != ref.Slot {
			t.Errorf("find %d: got slot %d, want %d", c.nr, got, ref.Slot)
		}
	}
	if got := f.ns.Find(5); got != slot {
		t.Errorf("find 5: got slot %d, want %d", got, slot)
	}
	for _, nr := range []uint32{0, 4, 6, Max, ^uint32(0)} {
		if got := f.ns.Find(nr); got != 0 {
			t.Errorf("find %d: got slot %d, want none", nr, got)
		}
	}
	if got, want := f.ns.Stats().Tagged, uint64(2); got != want {
		t.Errorf("tagged: got %d, want %d", got, want)
	}
}

func TestFreeNow(t *testing.T) {
	f := newFixture(t)
	f.attach(5, 5)
	f.attach(6, 5)
	f.attach(7, 7)
	f.detach(6)
	if got := f.ns.Stats().Tagged; got != 2 {
		t.Errorf("tagged without the thread: got %d, want 2", got)
	}
	f.detach(5)
	if got := f.ns.Stats().Tagged; got != 1 {
		t.Errorf("tagged: got %d, want 1", got)
	}
	f.wantList(7)
	f.attach(5, 7) // again, as a thread: no tag is left from before
	f.wantList(7)
	if f.w.Tree().Tagged(5, radix.Tree22TGID) {
		t.Error("5 bears the tag of its former life")
	}
	mustPanic(t, "pid: I3", func() { f.s.FreeNow([]uint32{1000}) })
}

// CASES.md B33, B51: numbers up to 2^22; leaders only, threads cost nothing.
func TestNextLeader(t *testing.T) {
	f := newFixture(t)
	f.wantList()
	for _, nr := range []uint32{Max - 1, 1, 2047, 2048, 40_000, 70_000} {
		f.attach(nr, nr)
	}
	for nr := uint32(100); nr < 1100; nr++ {
		f.attach(nr, 1)
	}
	f.wantList(1, 2047, 2048, 40_000, 70_000, Max-1)
	before := f.ns.Stats()
	f.list()
	if got := f.ns.Stats().Searches - before.Searches; got != 7 {
		t.Errorf("searches of a listing of 6: got %d, want 7", got)
	}
	var h table.Hot
	for _, from := range []uint32{Max, Max + 1, ^uint32(0)} {
		if f.ns.NextLeader(from, &h) {
			t.Errorf("from %d: got %d, want the end, without wrapping", from, h.TID)
		}
	}
	if !f.ns.NextLeader(Max-1, &h) || h.TID != Max-1 {
		t.Errorf("from the largest: got %d, want itself", h.TID)
	}
}

// M1.6, M1.7: tags without a leader are stepped over, each once.
func TestNextLeaderSkipsStaleTags(t *testing.T) {
	f := newFixture(t)
	f.attach(1, 1)
	for nr := uint32(1000); nr < 2000; nr++ {
		slot := f.attach(nr, nr)
		switch nr % 3 {
		case 0: // a session's number: the leader has gone
			f.w.Put(slot, &table.Hot{})
		case 1: // the slot is another task's already
			f.w.Put(slot, &table.Hot{TID: nr + 1, TGID: nr + 1, Gen: 1})
		case 2: // the task leads no group any more
			f.w.Put(slot, &table.Hot{TID: nr, TGID: 1, Gen: 1})
		}
	}
	f.attach(3000, 3000)
	before := f.ns.Stats()
	f.wantList(1, 3000)
	s := f.ns.Stats()
	if got := s.StaleTags - before.StaleTags; got != 1000 {
		t.Errorf("stale tags: got %d, want 1000", got)
	}
	if got := s.Searches - before.Searches; got != 1003 {
		t.Errorf("searches: got %d, want 1003: one for each tag and one for the end", got)
	}
}

func TestVerify(t *testing.T) {
	f := newFixture(t)
	f.attach(5, 5)
	f.attach(6, 5)
	for _, c := range []struct {
		nr         uint32
		leader, ok bool
		violations uint64
	}{{5, true, true, 0}, {5, false, true, 0}, {6, false, true, 0}, {6, true, false, 1}, {7, true, false, 2}} {
		if got := f.ns.Verify(c.nr, c.leader); got != c.ok {
			t.Errorf("verify %d, leader %v: got %v, want %v", c.nr, c.leader, got, c.ok)
		}
		if got := f.ns.Stats().Violations; got != c.violations {
			t.Errorf("violations: got %d, want %d", got, c.violations)
		}
	}
}

func TestAllocs(t *testing.T) {
	f := newFixture(t)
	for nr := uint32(1); nr < 500; nr++ {
		f.attach(nr, nr)
	}
	var h table.Hot
	found := uint32(0)
	if got := testing.AllocsPerRun(100, func() {
		f.detach(200)
		ref, err := f.s.NewSlot()
		if err != nil || f.s.Insert(ref, 200, true) != nil {
			panic("insert")
		}
		f.ns.NextLeader(100, &h)
		found += f.ns.Find(300)
		f.ns.Verify(200, true)
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
	if h.TID != 100 || found == 0 {
		t.Errorf("next leader from 100: got %d, want 100", h.TID)
	}
}

func BenchmarkFind(b *testing.B) {
	f := newFixture(b)
	for nr := uint32(1); nr <= 1000; nr++ {
		f.attach(nr, nr)
	}
	nr := uint32(0)
	for b.Loop() {
		nr = find(f.ns, nr)
	}
}

//go:noinline
func find(ns *Namespace, nr uint32) uint32 { return ns.Find(nr%1000+1) + nr }

func BenchmarkNextLeader(b *testing.B) {
	for _, c := range []struct {
		name    string
		threads uint32
	}{{"processes=1k", 0}, {"processes=1k,threads=100k", 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			f := newFixture(b)
			for nr := uint32(1); nr <= 1000; nr++ {
				f.attach(nr, nr)
			}
			for nr := range c.threads {
				f.attach(2000+nr, 1)
			}
			n := 0
			for b.Loop() {
				n = walk(f.ns)
			}
			if n != 1000 {
				b.Fatalf("got %d leaders, want 1000", n)
			}
		})
	}
}

//go:noinline
func walk(ns *Namespace) (n int) {
	var h table.Hot
	for w := ns.Leaders(0); w.Next(&h); {
		n++
	}
	return n
}
