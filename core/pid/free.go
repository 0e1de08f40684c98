package pid

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/generated/epoch"
)

// slotBytes is what waits with a slot for readers, in bytes.
const slotBytes = 128

// retireBatch is how many objects may wait for the pid lock before somebody who
// retires one tries to take it.
const retireBatch = 64

// Retire leaves pid objects, each of which has lost its last user (M5.3), to the
// next holder of the pid lock, most often an Alloc, which frees them in its own
// pass. Until then their numbers lead to records without a task. Lock-free.
func (s *Space) Retire(slots []uint32) {
	for _, slot := range slots {
		o := s.freeable(slot)
		for {
			head := s.retiredHead.Load()
			arch.StoreRelease64(&o.users, retiredBit|head&slotMask)
			if s.retiredHead.CompareAndSwap(head, head&^slotMask+1<<32|uint64(slot)) { // R
				break
			}
		}
	}
	if s.retiredHead.Load()>>32 >= retireBatch && s.mu.tryLock() {
		s.drainLocked()
		s.mu.unlock()
	}
}

const slotMask = 1<<32 - 1

// freeable returns the object in slot, which must be one, without users.
func (s *Space) freeable(slot uint32) *object {
	o := s.objects.At(slot)
	if o.handle() == 0 || o.freed() || atomic.LoadUint64(&o.users) != 0 {
		panic(fmt.Sprintf("pid: I3: free of slot %d, which is no pid object, is free, or has users", slot))
	}
	return o
}

// drainLocked frees what was retired.
func (s *Space) drainLocked() {
	if s.retiredHead.Load() != 0 {
		for slot := uint32(s.retiredHead.Swap(0)); slot != 0; { // R
			o := s.objects.At(slot)
			next := uint32(atomic.LoadUint64(&o.users))
			arch.StoreRelease64(&o.users, 0)
			s.freeLocked(slot)
			slot = next
		}
	}
	if len(s.pending) > 0 {
		s.deferLocked()
	}
}

// Free takes the numbers of pid objects away on all levels, in one pass under the
// pid lock, and reclaims slots and numbers when no reader can have them (M5.6).
// Each has lost its last user (M5.3).
func (s *Space) Free(slots []uint32) {
	s.mu.lock()
	defer s.mu.unlock()
	for _, slot := range slots {
		s.freeable(slot)
		s.freeLocked(slot)
	}
	s.drainLocked()
}

func (s *Space) freeLocked(slot uint32) {
	s.withdrawLocked(slot)
	if s.readers == nil {
		s.readers = epoch.NewWriter32(s.domain, s.reclaimedLocked)
	}
	if len(s.pending) > 0 || s.readers.Defer(slot, slotBytes) != nil {
		s.pending = append(s.pending, slot)
	}
}

// deferLocked hands over what found no room before, as far as readers let it.
func (s *Space) deferLocked() {
	n := 0
	for n < len(s.pending) && s.readers.Defer(s.pending[n], slotBytes) == nil {
		n++
	}
	s.pending = s.pending[:copy(s.pending, s.pending[n:])]
}

// FreeNow is Free without regard to readers: for numbers that the kernel chose.
func (s *Space) FreeNow(slots []uint32) {
	s.mu.lock()
	defer s.mu.unlock()
	for _, slot := range slots {
		s.freeable(slot)
		s.withdrawLocked(slot)
	}
	s.reclaimedLocked(slots)
}

// withdrawLocked takes an object's numbers out of the sight of readers: on each
// level the tag, then the entry. They stay reserved.
func (s *Space) withdrawLocked(slot uint32) {
	o := s.objects.At(slot)
	ns := s.namespaceOf(o)
	for l := ns; l != nil; l = l.parent {
		l.withdraw(s.numberAt(o, l.level))
		if l.numbers--; l.numbers == 0 && l.reaper.Load() == 0 && l.parent != nil {
			l.closed.Store(true) // its first process failed to be born, or was its last
		}
	}
	arch.StoreRelease64(&o.inner, atomic.LoadUint64(&o.inner)|withdrawn)
}

func (ns *Namespace) withdraw(nr uint32) {
	if ns.hasTag(nr) {
		ns.tagged.Add(^uint64(0))
	}
	found := false
	if ns.root != nil {
		found = ns.root.Delete(nr) != 0
	} else {
		found = ns.child.Withdraw(uint64(nr)) != 0
	}
	if !found {
		panic(fmt.Sprintf("pid: I2: number %d of a pid object was not visible", nr))
	}
}

// reclaimedLocked frees slots and numbers that no reader can have.
func (s *Space) reclaimedLocked(slots []uint32) {
	for _, slot := range slots {
		o := s.objects.At(slot)
		ns := s.namespaceOf(o)
		for l := ns; l != nil; l = l.parent {
			l.cancel(s.numberAt(o, l.level))
		}
		s.emptyLocked(slot)
		s.tab.FreeSlot(slot)
		s.dropLocked(ns)
	}
}

// emptyLocked makes a slot no object.
func (s *Space) emptyLocked(slot uint32) {
	o := s.objects.At(slot)
	if deep := o.deepIndex(); deep != 0 {
		s.deepFree = append(s.deepFree, deep)
	}
	arch.StoreRelease64(&o.inner, 0)
}

// reclaimWait bounds how long an allocation that finds nothing free waits for
// readers to let go of what was freed.
const reclaimWait = 10 * time.Millisecond

// reclaimLocked frees what waits for readers, as far as they leave in time, and
// reports whether anything did.
//
//go:noinline
func (s *Space) reclaimLocked() bool {
	if s.readers == nil {
		return false
	}
	before, _ := s.readers.Backlog()
	if before == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), reclaimWait)
	defer cancel()
	s.readers.Barrier(ctx) // what readers keep is not free, which is the answer
	after, _ := s.readers.Backlog()
	s.deferLocked()
	return after < before
}

// Waiting is the number of pid objects that are freed and wait for readers.
func (s *Space) Waiting() int {
	s.mu.lock()
	defer s.mu.unlock()
	s.drainLocked()
	if s.readers == nil {
		return 0
	}
	n, _ := s.readers.Backlog()
	return n + len(s.pending)
}

// Check compares the trees with their own invariants; for tests and moments
// without a writer.
func (ns *Namespace) Check() error {
	if ns.child != nil {
		return ns.child.Check()
	}
	return nil
}
