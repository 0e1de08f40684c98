package task

import (
	"fmt"
	"testing"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
)

// moment says in which state an engine is examined.
type moment int

const (
	between moment = iota // two transitions, no merge under way
	merging               // MergeBegin was called and MergeEnd was not
)

// checkInvariants fails t on the first thing in e that is not as engine.go's
// header says, or that disagrees with what e has published.
func checkInvariants(t testing.TB, e *Engine, m moment) {
	t.Helper()
	if err := examine(e, m); err != nil {
		t.Fatal(err)
	}
}

// examine looks at all of e.
func examine(e *Engine, m moment) error {
	x := examiner{e: e, m: m, children: map[uint32]int{}, gens: map[uint32]uint32{}}
	for _, look := range []func() error{x.records, x.lists, x.waiting, x.published} {
		if err := look(); err != nil {
			return err
		}
	}
	return nil
}

type examiner struct {
	e          *Engine
	m          moment
	tasks      uint64
	leaders    uint64
	stale      uint64 // numbers of leaders that are gone, kept by a group or session
	queued     [queues]uint32
	children   map[uint32]int    // by slot of the parent: those that name it
	gens       map[uint32]uint32 // slot by generation
	inTree     int
	treeBuffer [1 << 10]radix.Tree22Entry
}

// records examines each record by itself (I1, I3, I4).
func (x *examiner) records() error {
	for slot := uint32(1); slot < x.e.recs.end(); slot++ {
		r := x.e.recs.at(slot)
		if r.tid == 0 {
			continue
		}
		if err := x.record(slot, r); err != nil {
			return fmt.Errorf("slot %d, task %d of %d: %w", slot, r.tid, r.tgid, err)
		}
	}
	return nil
}

func (x *examiner) record(slot uint32, r *record) error {
	leads := r.tid == r.tgid
	x.tasks++
	x.queued[r.queue]++
	if leads {
		x.leaders++
	}
	if other, taken := x.gens[r.gen]; taken || r.gen == 0 {
		return fmt.Errorf("generation %d, which is none or slot %d's", r.gen, other)
	}
	x.gens[r.gen] = slot
	switch tagged := x.e.tab.Tree().Tagged(r.tid, radix.Tree22TGID); {
	case x.e.ids.Find(r.tid) != slot:
		return fmt.Errorf("I1: its number leads to slot %d", x.e.ids.Find(r.tid))
	case tagged != leads:
		return fmt.Errorf("tagged %v, leader %v", tagged, leads)
	case (r.leader == slot) != leads:
		return fmt.Errorf("I2: leader in slot %d", r.leader)
	case !leads && r.flags&(exited|ended) != 0:
		return fmt.Errorf("I3: flags %#x on a thread", r.flags)
	case r.flags&ended != 0 && (r.flags&exited == 0 || r.members != 1):
		return fmt.Errorf("I3: ended with flags %#x and %d members", r.flags, r.members)
	case x.m == between && leads && r.flags&exited != 0 && r.members == 1 && r.flags&ended == 0:
		return fmt.Errorf("I3: all have exited, yet it has not ended")
	case (r.flags&ended != 0) != (r.queue == zombieQueue || r.queue == zombieCheckQueue):
		return fmt.Errorf("I4: flags %#x in queue %d", r.flags, r.queue)
	case x.e.pids.Users(slot, pid.PID) != 1 || (x.e.pids.Users(slot, pid.TGID) == 1) != leads:
		return fmt.Errorf("I5: %d users as PID, %d as TGID", x.e.pids.Users(slot, pid.PID), x.e.pids.Users(slot, pid.TGID))
	case r.queue == noQueue && (r.qnext|r.qprev) != 0:
		return fmt.Errorf("I4: queue links %d, %d without a queue", r.qprev, r.qnext)
	case !leads && (r.parent|r.child|r.sibNext|r.sibPrev) != 0:
		return fmt.Errorf("a thread with family")
	}
	if r.parent != 0 {
		x.children[r.parent]++
		p := x.e.recs.at(r.parent)
		if p.tid == 0 || p.leader != r.parent || p.flags&ended != 0 {
			return fmt.Errorf("parent %d in slot %d, flags %#x, can have no children", p.tid, r.parent, p.flags)
		}
	}
	return nil
}

// lists examines rings and lists of children (I2).
func (x *examiner) lists() error {
	for slot := uint32(1); slot < x.e.recs.end(); slot++ {
		r := x.e.recs.at(slot)
		if r.tid == 0 || r.leader != slot {
			continue
		}
		n := uint32(0)
		for at := slot; ; {
			m := x.e.recs.at(at)
			if m.tid == 0 || m.leader != slot || m.tgid != r.tgid || x.e.recs.at(m.next).prev != at {
				return fmt.Errorf("I2: ring of %d: slot %d holds task %d of %d", r.tid, at, m.tid, m.tgid)
			}
			if n++; n > uint32(x.tasks) {
				return fmt.Errorf("I2: ring of %d does not close", r.tid)
			}
			if at = m.next; at == slot {
				break
			}
		}
		if n != r.members {
			return fmt.Errorf("I2: ring of %d: %d tasks, want %d members", r.tid, n, r.members)
		}
		if err := x.family(slot, r); err != nil {
			return err
		}
	}
	total := uint32(0)
	for slot := uint32(1); slot < x.e.recs.end(); slot++ {
		if r := x.e.recs.at(slot); r.tid != 0 && r.leader == slot {
			total += r.members
		}
	}
	if uint64(total) != x.tasks {
		return fmt.Errorf("I2: rings hold %d tasks, want %d", total, x.tasks)
	}
	return nil
}

func (x *examiner) family(slot uint32, r *record) error {
	n, prev := 0, uint32(0)
	for at := r.child; at != 0; at = x.e.recs.at(at).sibNext {
		c := x.e.recs.at(at)
		if c.tid == 0 || c.parent != slot || c.sibPrev != prev {
			return fmt.Errorf("children of %d: slot %d holds task %d of parent slot %d, sibPrev %d, want %d", r.tid, at, c.tid, c.parent, c.sibPrev, prev)
		}
		if n++; n > int(x.leaders) {
			return fmt.Errorf("children of %d: endless", r.tid)
		}
		prev = at
	}
	if r.lastChild != prev {
		return fmt.Errorf("children of %d: the last is in slot %d, want %d", r.tid, r.lastChild, prev)
	}
	if n != x.children[slot] {
		return fmt.Errorf("children of %d: %d in the list, want %d", r.tid, n, x.children[slot])
	}
	return nil
}

// waiting examines the check queues (I4).
func (x *examiner) waiting() error {
	for id := verifyQueue; id < queues; id++ {
		q := &x.e.queues[id]
		n, prev := uint32(0), uint32(0)
		for at := q.head; at != 0; at = x.e.recs.at(at).qnext {
			r := x.e.recs.at(at)
			if r.tid == 0 || r.queue != id || r.qprev != prev {
				return fmt.Errorf("I4: queue %d: slot %d holds task %d, queue %d, qprev %d, want %d", id, at, r.tid, r.queue, r.qprev, prev)
			}
			if n++; uint64(n) > x.tasks {
				return fmt.Errorf("I4: queue %d: endless", id)
			}
			prev = at
		}
		if q.tail != prev || q.n != n || n != x.queued[id] {
			return fmt.Errorf("I4: queue %d: tail %d, n %d, counted %d, want tail %d, n %d", id, q.tail, q.n, n, prev, x.queued[id])
		}
	}
	return nil
}

// published examines what readers see.
func (x *examiner) published() error {
	for from, more := uint32(0), true; more; {
		var n int
		n, from, more = x.e.tab.Tree().GangAll(from, x.treeBuffer[:])
		for _, entry := range x.treeBuffer[:n] {
			if x.e.recs.at(entry.Slot).tid == 0 {
				if err := x.staleNumber(entry.Key, entry.Slot); err != nil {
					return fmt.Errorf("number %d without a task: %w", entry.Key, err)
				}
				continue
			}
			if err := x.publishedTask(entry.Key, entry.Slot); err != nil {
				return fmt.Errorf("published task %d: %w", entry.Key, err)
			}
			x.inTree++
		}
	}
	h := x.e.tab.Header()
	s := x.e.ids.Stats()
	switch {
	case uint64(x.inTree) != x.tasks:
		return fmt.Errorf("I1: %d numbers in the tree, want %d", x.inTree, x.tasks)
	case h.Tasks != x.tasks || h.Processes != x.leaders:
		return fmt.Errorf("header: %d tasks, %d processes, want %d, %d", h.Tasks, h.Processes, x.tasks, x.leaders)
	case s.Tagged != x.leaders+x.stale || s.Violations != 0:
		return fmt.Errorf("%d tagged, %d violations, want %d, 0", s.Tagged, s.Violations, x.leaders+x.stale)
	}
	return nil
}

// staleNumber examines a number that only a group or a session keeps (M1.6).
func (x *examiner) staleNumber(nr, slot uint32) error {
	var h table.Hot
	x.stale++
	switch {
	case x.e.pids.Users(slot, pid.PGID)+x.e.pids.Users(slot, pid.SID) == 0:
		return fmt.Errorf("I5: nobody uses it")
	case x.e.pids.Users(slot, pid.PID)+x.e.pids.Users(slot, pid.TGID) != 0:
		return fmt.Errorf("I5: used as PID or TGID")
	case !x.e.tab.Read(slot, &h) || h.TID != 0:
		return fmt.Errorf("its record bears number %d", h.TID)
	}
	return nil
}

func (x *examiner) publishedTask(tid, slot uint32) error {
	var h table.Hot
	if !x.e.tab.Read(slot, &h) {
		return fmt.Errorf("no stable record")
	}
	r := x.e.recs.at(slot)
	leads := r.leader == slot
	threads, ppid := uint32(0), uint32(0)
	if leads {
		threads, ppid = r.members, h.PPID
		if r.parent != 0 {
			ppid = x.e.recs.at(r.parent).tid
		}
	}
	wantFlags := uint32(0)
	switch {
	case r.flags&ended != 0:
		wantFlags = table.FlagZombie
	case r.flags&exited != 0:
		wantFlags = table.FlagExitedLeader
	}
	wantState := byte(0)
	if wantFlags != 0 {
		wantState = 'Z'
	}
	switch {
	case h.TID != tid || r.tid != tid || h.TGID != r.tgid || h.Gen != r.gen:
		return fmt.Errorf("record of task %d of %d, gen %d; want %d of %d, gen %d", h.TID, h.TGID, h.Gen, tid, r.tgid, r.gen)
	case h.Threads != threads:
		return fmt.Errorf("%d threads, want %d", h.Threads, threads)
	case h.PPID != ppid:
		return fmt.Errorf("parent %d, want %d", h.PPID, ppid)
	case h.Flags&(table.FlagZombie|table.FlagExitedLeader) != wantFlags || h.State != wantState:
		return fmt.Errorf("flags %#x, state %q; want flags %#x, state %q", h.Flags, h.State, wantFlags, wantState)
	}
	return nil
}

// checkSlots fails t unless each slot below the allocated end is either in use or
// can be had exactly once.
func checkSlots(t testing.TB, e *Engine) {
	t.Helper()
	end := e.tab.Header().ChunksUsed * chunkRecords
	used := map[uint32]bool{}
	for slot := uint32(1); slot < e.recs.end(); slot++ {
		if e.recs.at(slot).tid != 0 {
			used[slot] = true
		}
	}
	var got []uint32
	for n := int(end) - 1 - len(used); end > 0 && n > 0; n-- {
		slot, err := e.tab.NewSlot()
		if err != nil {
			t.Fatalf("slot %d of %d: %v", len(used), end, err)
		}
		if used[slot] || slot == 0 || slot >= end {
			t.Fatalf("slot %d was given although it is in use, given already, or beyond %d", slot, end)
		}
		used[slot] = true
		got = append(got, slot)
	}
	for i := range got {
		e.tab.FreeSlot(got[len(got)-1-i])
	}
}
