package perf

import (
	"math"
	"math/bits"

	"github.com/kpidd/kpidd/core/live"
)

// A key of the tournament: the record's time, counted from spanNs before the
// cut, above the index of its ring. One comparison orders both, and min and max
// of two keys need no branch.
const (
	indexBits = 13
	indexMask = 1<<indexBits - 1
	ringsMax  = indexMask // more than the kernel's NR_CPUS can be
	spanNs    = 1<<(64-indexBits) - 2
	noKey     = math.MaxUint64 // the ring has nothing more in this round
)

// aheadNsMax is how far the time of a record may be ahead of the clock once the
// record has waited for a whole round. No record is ahead at all; the slack
// covers the nanoseconds by which the kernel's lockless reading of the clock
// may slip on another CPU.
const aheadNsMax = 1_000_000_000

// merge delivers the records of many rings in the order of cause and effect.
//
// 1. What: a tournament tree over rings, drained in rounds. Its zero value has
// no rings; not to be copied after first use.
//
// 2. Invariants:
//
//	I1  A round delivers a record only if it was committed when its ring's
//	    head was loaded and is stamped at or before the round's cut.
//	I2  Records of one ring leave in the order of the ring; of those that are
//	    next on their rings, the one stamped first leaves first.
//	I3  tree[0] is the smallest key; tree[p] is the larger of the two that
//	    met at node p; node p's children are 2p and 2p+1, ring i is leaf
//	    len(tree)+i.
//
// Cause before effect. Let record D depend on R: whatever made D ran after R
// was committed (a child forks, is forked and exits; a parent forks again after
// it has waited). A record's time is taken before it is committed, so
//
//	time(R) <= commit(R) < time(D).
//
// On the same ring D stands behind R and I2 settles it. On different rings, in
// the round that delivers D: had R not been committed when its ring's head was
// loaded, then cut < load(head) < commit(R) < time(D), and I1 would hold D back.
// So R was visible, with time(R) < time(D) <= cut, in this round or before. Then
// R, and all before R on its ring (stamped no later than R's commit), have
// smaller times than D, and I2 delivers R first. It is the order of the two
// steps, first the clock and then the heads, that carries this; with the heads
// first, D can be seen and R not.
//
// The times of one ring grow, but for a LOST record, which stands before the
// record that found room again and is stamped just after that record's time;
// both are stamped before the commit of the latter, which is all that is used.
// The clock is one for all CPUs: CLOCK_MONOTONIC.
//
// 3. Who: one goroutine. The rings have headers of their own.
//
// 4. Ordering:
//
//	C  begin's caller reads the clock, by a system call, before begin loads
//	   the heads (A in ring.go).
//
// 5. Staleness: what is stamped after the cut waits for the next round. Over
// rounds times may step back, by a record stamped before an earlier cut and
// committed after it; nothing that was delivered depends on that record.
//
// 6. Lifetime: events are copies.
//
// 7. Progress: wait-free; a round ends after the records that were there when
// it began. One event costs a step for each level of the tree, so 64 rings cost
// six comparisons more than one. Records more than spanNs (26 days) older than
// the cut count as equally old.
//
// 8. Source: the tournament ("loser") tree, Knuth, volume 3, 5.4.1.
type merge struct {
	rings []*ring
	tree  []uint64 // winner and losers, a power of two
	leafs []uint64 // scratch for build, twice as long
	cut   uint64
	base  uint64 // cut - spanNs, or 0
}

// setRings replaces the rings, between rounds.
func (m *merge) setRings(rings []*ring) {
	width := 1
	if len(rings) > 1 {
		width = 1 << bits.Len(uint(len(rings)-1))
	}
	m.rings = rings
	m.tree = make([]uint64, width)
	m.leafs = make([]uint64, 2*width)
}

// begin starts a round over what is stamped at or before cut. The caller must
// have read the clock before the call. (C)
func (m *merge) begin(cut uint64) error {
	for _, r := range m.rings {
		r.loadHead()
	}
	return m.build(cut)
}

// build lets the rings meet, after their heads were loaded.
func (m *merge) build(cut uint64) error {
	m.cut = cut
	m.base = cut - min(cut, spanNs)
	width := len(m.tree)
	for i := range width {
		key := uint64(noKey)
		if i < len(m.rings) {
			r := m.rings[i]
			key = m.next(uint64(i), r)
			if r.held && r.time > cut && r.time-cut > aheadNsMax {
				r.fail("record is stamped ahead of the clock")
			}
			if err := r.err(); err != nil {
				return err
			}
		}
		m.leafs[width+i] = key
	}
	for p := width - 1; p > 0; p-- {
		a, b := m.leafs[2*p], m.leafs[2*p+1]
		m.leafs[p] = min(a, b)
		m.tree[p] = max(a, b)
	}
	m.tree[0] = m.leafs[1]
	return nil
}

// drain fills buf and returns how many events it has put there. Fewer than
// len(buf), without an error, is the end of the round.
func (m *merge) drain(buf []live.Event) (n int, err error) {
	for n < len(buf) {
		key := m.tree[0]
		if key == noKey {
			break
		}
		i := key & indexMask
		r := m.rings[i]
		r.take(&buf[n])
		n++
		if r.pos-r.tail > r.size()/4 {
			r.release()
		}
		key = m.next(i, r)
		m.replay(i, key)
		if key == noKey && r.fault != "" {
			return n, r.err()
		}
	}
	return n, nil
}

// next returns the key of ring i's next record in this round. Where there is
// none, the ring's bytes go back to the kernel.
func (m *merge) next(i uint64, r *ring) uint64 {
	if !r.peek() || r.time > m.cut {
		r.release()
		return noKey
	}
	return (max(r.time, m.base)-m.base)<<indexBits | i
}

// replay lets ring i's new key meet the losers on its way to the top.
func (m *merge) replay(i, key uint64) {
	tree := m.tree
	for p := (uint64(len(tree)) + i) / 2; p > 0; p /= 2 {
		loser := tree[p]
		tree[p] = max(loser, key)
		key = min(loser, key)
	}
	tree[0] = key
}
