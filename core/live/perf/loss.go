package perf

import (
	"encoding/binary"
	"slices"

	"github.com/kpidd/kpidd/core/live"
	"golang.org/x/sys/unix"
)

// The kernel tells a loss twice: by a LOST record, which it writes only ahead
// of the next record that fits, and by the event's own counter, which read(2)
// returns at any time (Linux 6.0). Both count the same losses in the same
// order, so the larger of the two sums is what was lost so far, and what was
// told before is taken off.

// tell returns how many of total losses are still to be told, and counts them
// as told.
func (r *ring) tell(total uint64) uint64 {
	if total <= r.told {
		return 0
	}
	n := total - r.told
	r.told = total
	return n
}

// counters is what read(2) of the event returns.
type counters struct {
	enabledNs uint64 // how long the event has been on its CPU
	lost      uint64 // records lost since it was opened
	hasLost   bool   // the kernel counts them
}

// readCounters reads the event's counters. They are all 0 without an event.
func (r *ring) readCounters() counters {
	var b [24]byte
	if r.fd < 0 {
		return counters{}
	}
	n, err := unix.Read(r.fd, b[:])
	if err != nil || n < 16 {
		return counters{}
	}
	c := counters{enabledNs: binary.NativeEndian.Uint64(b[8:])}
	if n == len(b) {
		c.lost, c.hasLost = binary.NativeEndian.Uint64(b[16:]), true
	}
	return c
}

// settle returns what is to be told about a ring when a round has emptied it: a
// loss that no record has told yet. A ring that ends without a way to ask for
// its last losses is Blind.
func (r *ring) settle(nowNs uint64) (ev live.Event, tell bool) {
	c := r.readCounters()
	if n := r.tell(c.lost); n != 0 {
		return live.Event{Kind: live.Lost, TimeNs: nowNs, Lost: n}, true
	}
	if r.gone && !c.hasLost {
		return live.Event{Kind: live.Blind, TimeNs: nowNs}, true
	}
	return live.Event{}, false
}

// RingLoss is what the rings of one CPU have lost since the source was opened.
type RingLoss struct {
	CPU    int
	Kernel uint64 // as the kernel counts; before Linux 6.0, as its LOST records say
	Told   uint64 // the sum of the Lost events
}

// LostByRing returns the losses of each CPU that has or had a ring, by CPU
// number. Kernel and Told are equal, but for losses since the last round and
// Lost events that Drain has found and not yet delivered. It belongs to the
// goroutine that drains, and allocates.
func (s *Source) LostByRing() []RingLoss {
	all := slices.Clone(s.past)
	for _, r := range s.merge.rings {
		all = addLoss(all, r.loss())
	}
	slices.SortFunc(all, func(a, b RingLoss) int { return a.CPU - b.CPU })
	return all
}

func (r *ring) loss() RingLoss {
	return RingLoss{CPU: r.cpu, Kernel: max(r.recorded, r.readCounters().lost), Told: r.told}
}

// addLoss adds the losses of one ring to its CPU's entry in all.
func addLoss(all []RingLoss, l RingLoss) []RingLoss {
	for i := range all {
		if all[i].CPU == l.CPU {
			all[i].Kernel += l.Kernel
			all[i].Told += l.Told
			return all
		}
	}
	return append(all, l)
}
