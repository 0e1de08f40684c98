package pid

import (
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
)

// NextLeader copies the record of the thread group leader with the lowest number
// >= nr into h. ok is false at the end of the number space; the search does not
// wrap. To go on in the root namespace, ask for h.TID + 1; Walk knows the position
// in every namespace.
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

// Number is the number, in the walk's namespace, of the leader that Next found. A
// walk from Number() + 1 goes on where this one is.
func (w *Walk) Number() uint32 { return w.next - 1 }

// Stop adds the work of a walk that is given up to Stats.
func (w *Walk) Stop() {
	w.ns.searches.Add(w.searches)
	w.ns.staleTags.Add(w.staleTags)
	w.searches, w.staleTags = 0, 0
}

func (w *Walk) step(h *table.Hot) bool {
	if w.ns.root == nil {
		return w.stepChild(h)
	}
	for {
		w.searches++
		key, slot, found := w.ns.root.NextTagged(w.next, radix.Tree22TGID)
		if !found {
			return false
		}
		w.next = key + 1
		if w.ns.space.view.Read(slot, h) && h.TID == key && h.TGID == key {
			return true
		}
		w.staleTags++
	}
}

// stepChild is step in a namespace that is not the root: the generation tells
// whether the record is that number's.
func (w *Walk) stepChild(h *table.Hot) bool {
	for {
		w.searches++
		key, v, found := w.ns.child.NextTagged(uint64(w.next), radix.Tree64SlabTGID)
		if !found {
			return false
		}
		w.next = uint32(key) + 1
		if w.ns.readChild(v, h) && h.TID == h.TGID {
			return true
		}
		w.staleTags++
	}
}

// Next returns the lowest number >= from that leads to a pid object, with a task or
// without, and its slot.
func (ns *Namespace) Next(from uint32) (nr, slot uint32, ok bool) {
	if ns.root != nil {
		var buf [1]radix.Tree22Entry
		n, _, _ := ns.root.GangAll(from, buf[:])
		return buf[0].Key, buf[0].Slot, n > 0
	}
	var buf [1]radix.Tree64SlabEntry
	n, _, _ := ns.child.GangAll(uint64(from), buf[:])
	return uint32(buf[0].Key), uint32(buf[0].Value), n > 0
}
