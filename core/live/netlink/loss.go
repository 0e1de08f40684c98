package netlink

import "github.com/kpidd/kpidd/core/live"

// losses finds out what the kernel dropped. Two signs tell of it:
//
//   - ENOBUFS: the buffer ran over. It comes once per overrun, without a
//     number, and before the datagrams that were still queued. From then on
//     the kernel drops everything until the queue has run empty. The loss lies
//     behind the queued datagrams, and there it is told: where the queue has
//     run dry, or before the first datagram stamped after the ENOBUFS.
//   - A gap in a CPU's sequence numbers. It gives the exact number, also
//     where the kernel had no memory for a datagram and sent no ENOBUFS, but
//     only when that CPU speaks again, and not if it had never spoken before.
//     The kernel counts every datagram in it, acknowledgements too.
//
// So an overrun gives one Lost of unknown size (0), or none if a gap shows at
// the very place, and then one Lost with the number per CPU that was hit. The
// sum of the numbers is the number of datagrams lost.
//
// The zero value is ready. Owned by the goroutine that drains; not to be
// copied.
type losses struct {
	overrunNs uint64 // when ENOBUFS was met and not yet told; 0 none
	cpus      [cpusMax]cpuSequence
}

type cpuSequence struct {
	next  uint32 // number of the CPU's next datagram
	heard bool
}

// overrun notes an ENOBUFS met at the given time.
func (l *losses) overrun(nowNs uint64) { l.overrunNs = nowNs }

// dry tells the loss that ends where the queue has run dry, if there is one.
func (l *losses) dry(nowNs uint64, lost *live.Event) bool {
	if l.overrunNs == 0 {
		return false
	}
	l.overrunNs = 0
	*lost = live.Event{Kind: live.Lost, TimeNs: nowNs}
	return true
}

// before tells what was lost before m, if anything. It tells each loss once:
// called again with the same m it has nothing more.
func (l *losses) before(m *message, lost *live.Event) bool {
	past := l.overrunNs != 0 && m.event.TimeNs > l.overrunNs
	if past {
		l.overrunNs = 0
	}
	gap, ok := l.cpus[m.cpu].gap(m.seq)
	if !ok && !past {
		return false
	}
	*lost = live.Event{Kind: live.Lost, TimeNs: m.event.TimeNs, Lost: uint64(gap)}
	return true
}

// seen notes that m, about which before had nothing more to tell, is consumed.
func (l *losses) seen(m *message) {
	l.cpus[m.cpu] = cpuSequence{next: m.seq + 1, heard: true}
}

// gap compares the number of a datagram with the one expected, and expects
// this one from now on. A number that lies behind gives a gap of unknown size.
func (c *cpuSequence) gap(seq uint32) (gap uint32, ok bool) {
	if !c.heard || seq == c.next {
		return 0, false
	}
	gap = seq - c.next
	c.next = seq
	if gap >= 1<<31 {
		gap = 0
	}
	return gap, true
}
