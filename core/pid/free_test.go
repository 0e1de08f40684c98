package pid

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/epoch"
	"golang.org/x/sys/unix"
)

// mustPanic fails t unless do panics with a text that names the rule.
func mustPanic(t testing.TB, rule string, do func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got, _ := recover().(string); !strings.Contains(got, rule) {
			t.Errorf("got panic %q, want one that names %q", got, rule)
		}
	}()
	do()
}

// M5.6: what a reader found stays readable to the end of its section, and neither
// slot nor number is reused before.
func TestFreeWaitsForReaders(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	in := f.child(f.ns)
	f.alloc(in, 0)
	ref := f.alloc(in, 0)
	reader := f.s.Domain().Register("reader")
	defer reader.Unregister()
	reader.Enter()
	got, ok := in.Ref(2)
	if !ok || got != ref {
		t.Fatalf("ref of 2: got %v, %v; want %v", got, ok, ref)
	}
	f.end(ref)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := f.s.Settle(ctx); err == nil || !strings.Contains(err.Error(), "reader") {
		t.Errorf("settle beside a reader: got %v, want an error that names it", err)
	}
	var h table.Hot
	if !f.w.Read(ref.Slot, &h) || h.Gen != ref.Gen || h.TGID != 3 || h.TID != 0 {
		t.Errorf("record of a task that was released: %+v, want the life of before, without its number", h)
	}
	if f.ns.Read(3, &h) || in.Read(2, &h) || f.ns.Find(3) != 0 || in.Find(2) != 0 {
		t.Error("a freed number is found")
	}
	for range 3000 {
		again := f.alloc(in, 0)
		if again.Slot == ref.Slot || f.s.Number(again.Slot, in) == 2 {
			t.Fatalf("slot %d or number 2 was reused beside a reader", ref.Slot)
		}
		f.end(again)
	}
	_, err := f.s.Alloc(in, &Request{Numbers: []uint32{2}, Allowed: true})
	wantErr(t, "request of a number that waits for a reader", err, unix.EEXIST)
	reader.Exit()
	ref, err = f.s.Alloc(in, &Request{Numbers: []uint32{2}, Allowed: true})
	wantErr(t, "request of a number that waited", err, nil)
	f.begin(ref, 2)
	f.settle()
	if got := f.s.Waiting(); got != 0 {
		t.Errorf("waiting: got %d, want 0", got)
	}
}

// A reader that stays holds up reclaim, not the engine; nothing is lost.
func TestFreeBesideStalledReader(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	reader := f.s.Domain().Register("stalled")
	reader.Enter()
	const n = 20_000 // more than a retire ring holds
	for range n {
		f.end(f.alloc(f.ns, 0))
	}
	if got := f.s.Waiting(); got != n {
		t.Errorf("waiting: got %d, want %d", got, n)
	}
	reader.Exit()
	reader.Unregister()
	f.settle()
	if got := f.s.Waiting(); got != 0 {
		t.Errorf("waiting: got %d, want 0", got)
	}
	if _, err := f.w.NewSlot(); err != nil || errors.Is(err, epoch.ErrBacklog) {
		t.Error(err)
	}
}

// M5.3, and misuse that never is silent.
func TestRoles(t *testing.T) {
	f := newFixture(t)
	init := f.alloc(f.ns, 0)
	for _, r := range []Role{PGID, SID} {
		f.s.Attach(init.Slot, r)
	}
	child := f.alloc(f.ns, 0)
	for _, r := range []Role{PGID, SID} {
		f.s.Attach(init.Slot, r)
		if got := f.s.Users(init.Slot, r); got != 2 {
			t.Errorf("users of role %d: got %d, want 2", r, got)
		}
	}
	want := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got last %v, want %v", what, got, want)
		}
	}
	slot := init.Slot
	mustPanic(t, "pid: I4", func() { f.s.Attach(slot, PID) })
	mustPanic(t, "pid: I4", func() { f.s.Attach(slot, TGID) })
	mustPanic(t, "pid: I4", func() { f.s.Detach(slot, PID) }) // TGID first
	mustPanic(t, "pid: I4", func() { f.s.Detach(child.Slot, SID) })
	mustPanic(t, "pid: I4", func() { f.s.Detach(child.Slot, PGID) })
	mustPanic(t, "pid: I3", func() { f.s.Free([]uint32{slot}) })
	mustPanic(t, "pid: I3", func() { f.s.FreeNow([]uint32{slot}) })
	want("TGID", f.s.Detach(slot, TGID), false)
	want("PID", f.s.Detach(slot, PID), false)
	want("its own SID", f.s.Detach(slot, SID), false)
	want("its own PGID", f.s.Detach(slot, PGID), false)
	want("the child's PGID: M5.5", f.s.Change(slot, child.Slot, PGID), false)
	want("to itself", f.s.Change(child.Slot, child.Slot, PGID), false)
	want("the child's SID, the last of any role", f.s.Change(slot, child.Slot, SID), true)
	f.s.Free([]uint32{slot})
	mustPanic(t, "pid: I3", func() { f.s.Free([]uint32{slot}) })
	mustPanic(t, "pid: I1", func() { f.s.Attach(slot, PID) })
	f.settle()
	mustPanic(t, "pid: I1", func() { f.s.Attach(slot, PID) })
	for _, r := range []Role{PID, TGID, PGID, SID} {
		if got := f.s.Users(child.Slot, r); got != 1 {
			t.Errorf("users of role %d: got %d, want 1", r, got)
		}
	}
}

// M1.6: a leader on a number without a tag is counted.
func TestAttachCountsMissingTag(t *testing.T) {
	f := newFixture(t)
	f.alloc(f.ns, 0)
	in := f.child(f.ns)
	ref, err := f.s.Alloc(in, &Request{}) // not for a leader
	if err != nil {
		t.Fatal(err)
	}
	f.s.Attach(ref.Slot, PID)
	f.s.Attach(ref.Slot, TGID)
	for _, ns := range []*Namespace{f.ns, in} {
		if got := ns.Stats().Violations; got != 1 {
			t.Errorf("violations in level %d: got %d, want 1", ns.level, got)
		}
	}
}

// The pid lock is the innermost.
func TestLockOrder(t *testing.T) {
	f := newFixture(t)
	f.s.mu.lock()
	defer f.s.mu.unlock()
	if f.s.mu.owner.Load() == 0 {
		t.Skip("this build does not know who holds a lock")
	}
	mustPanic(t, "lock order", f.s.AssertOutside)
	mustPanic(t, "lock order", f.s.mu.lock)
}
