package pid

import (
	"fmt"
	"sync/atomic"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// Max is one more than the largest pid number that Linux gives.
const Max = radix.Tree22Keys

// Namespace is the root PID namespace: pid number -> slot of the task's record.
//
//  1. Made by NewNamespace over a table; not to be copied.
//  2. I1: a number is in the tree exactly while a task has it. I2 (M1.5, M1.6):
//     the number of every task that leads a thread group bears TGID; a tagged
//     number without a leader is allowed, an untagged one with a leader never.
//  3. Attach and Detach belong to the holder of the engine's lock; all else may be
//     called by anybody at any time. Counters are atomic.
//  4. A: the task's record is stored before Attach stores the slot; readers load
//     the slot first. B: TGID is set after the slot is visible (M1.5).
//  5. A reader racing with Attach may miss the task; one racing with Detach may
//     get a slot whose record bears another number, which it skips. It never takes
//     one task for another, since the number is checked inside the record's read.
//  6. Slots and numbers are reused at once in observe mode.
//  7. Readers are lock-free; a walk goes on at the number that it found + 1,
//     so a whole listing is linear in tagged numbers however many are stale (M1.7).
//  8. Source: MECHANISMS.md M1 (tagged pid search).
type Namespace struct {
	view *table.View
	tree *radix.Tree22

	searches   atomic.Uint64
	staleTags  atomic.Uint64
	tagged     atomic.Uint64
	violations atomic.Uint64
}

// Stats are the live figures of M1. Violations counts breaches of M1.6, which
// are bugs of this package.
type Stats struct{ Tagged, StaleTags, Searches, Violations uint64 }

// NewNamespace makes the namespace whose tree and records are w's.
func NewNamespace(w *table.Writer) *Namespace {
	return &Namespace{view: &w.View, tree: w.Tree()}
}

// Attach gives number nr to the task in slot, whose record the caller has
// stored, and tags it if the task leads a thread group. EINVAL: no pid number.
// EEXIST: taken. Else the table's error when the tree needs memory: then nothing
// has changed.
func (ns *Namespace) Attach(nr, slot uint32, leader bool) error {
	switch {
	case nr == 0 || nr >= Max:
		return fmt.Errorf("attach pid %d: %w", nr, unix.EINVAL)
	case ns.tree.Lookup(nr) != 0:
		return fmt.Errorf("attach pid %d: %w", nr, unix.EEXIST)
	}
	if err := ns.tree.InsertNew(nr, slot); err != nil { // A
		return fmt.Errorf("attach pid %d: %w", nr, err)
	}
	if leader {
		ns.tree.SetTag(nr, radix.Tree22TGID) // B
		ns.tagged.Add(1)
	}
	return nil
}

// Detach takes nr away from its task.
func (ns *Namespace) Detach(nr uint32) {
	if ns.tree.Tagged(nr, radix.Tree22TGID) {
		ns.tagged.Add(^uint64(0))
	}
	if ns.tree.Delete(nr) == 0 {
		panic(fmt.Sprintf("pid: I1: detach of number %d that no task has", nr))
	}
}

// Find returns the slot of the task with number nr, 0 if there is none.
func (ns *Namespace) Find(nr uint32) uint32 { return ns.tree.Lookup(nr) }

// NextLeader copies the record of the thread group leader with the lowest number
// >= nr into h. ok is false at the end of the number space; the search does not
// wrap. To go on, ask for h.TID + 1, or Walk.
func (ns *Namespace) NextLeader(nr uint32, h *table.Hot) (ok bool) {
	w := Walk{ns: ns, next: nr}
	return w.step(h)
}

// Walk goes through the thread group leaders in order of their numbers. It belongs
// to one goroutine, and counts what it does by itself: readers write no memory
// that others write.
type Walk struct {
	ns                  *Namespace
	next                uint32
	searches, staleTags uint64
}

// Leaders returns a walk over the leaders with numbers >= from. Each process that
// lives from its beginning to its end is met exactly once (M1.8).
func (ns *Namespace) Leaders(from uint32) Walk { return Walk{ns: ns, next: from} }

// Next copies the next leader's record into h. After the last one it is false, and
// the walk's work is in Stats.
func (w *Walk) Next(h *table.Hot) (ok bool) {
	if w.step(h) {
		return true
	}
	w.Stop()
	return false
}

// Stop adds the work of a walk that is given up to Stats.
func (w *Walk) Stop() {
	w.ns.searches.Add(w.searches)
	w.ns.staleTags.Add(w.staleTags)
	w.searches, w.staleTags = 0, 0
}

func (w *Walk) step(h *table.Hot) bool {
	for {
		w.searches++
		key, slot, found := w.ns.tree.NextTagged(w.next, radix.Tree22TGID)
		if !found {
			return false
		}
		w.next = key + 1
		if w.ns.view.Read(slot, h) && h.TID == key && h.TGID == key {
			return true
		}
		w.staleTags++
	}
}

// Verify compares the tag of nr with what the task's record says, counts a
// breach of M1.6, and reports whether all is well.
func (ns *Namespace) Verify(nr uint32, leader bool) bool {
	if leader && !ns.tree.Tagged(nr, radix.Tree22TGID) {
		ns.violations.Add(1)
		return false
	}
	return true
}

// Stats returns the counters of this moment.
func (ns *Namespace) Stats() Stats {
	return Stats{ns.tagged.Load(), ns.staleTags.Load(), ns.searches.Load(), ns.violations.Load()}
}
