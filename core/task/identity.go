package task

import (
	"fmt"
	"sync/atomic"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// identity is what a task that was made by request has beside its record: group
// and session (of a leader), credentials, counters. Stored under Engine.mu, loaded
// by anybody; each word is atomic, so that what changes together lies together.
// Who reads it checks the record's generation before and after (F).
type identity struct {
	ids  uint64 // numbers of process group and session, root namespace; and unsharedBit
	uids uint64 // real user id, and above it the effective one
	gids uint64

	utimeNs, stimeNs, switches uint64 // a leader's include those of threads that have ended
}

// unsharedBit in identity.ids: Engine.unshared holds the namespace of its children.
const unsharedBit = 1 << 63

func idsOf(pgid, sid uint32) uint64 { return uint64(pgid) | uint64(sid)<<32 }

func (w *identity) pgid() uint32   { return uint32(atomic.LoadUint64(&w.ids)) }
func (w *identity) sid() uint32    { return uint32((atomic.LoadUint64(&w.ids) &^ unsharedBit) >> 32) }
func (w *identity) unshared() bool { return atomic.LoadUint64(&w.ids)&unsharedBit != 0 }
func (w *identity) euid() uint32   { return uint32(atomic.LoadUint64(&w.uids) >> 32) }

// setIDs stores group and session, and keeps the bit beside them.
func (w *identity) setIDs(pgid, sid uint32) {
	arch.StoreRelease64(&w.ids, idsOf(pgid, sid)|atomic.LoadUint64(&w.ids)&unsharedBit) // F
}

func (w *identity) setUnshared(on bool) {
	ids := atomic.LoadUint64(&w.ids) &^ unsharedBit
	if on {
		ids |= unsharedBit
	}
	arch.StoreRelease64(&w.ids, ids)
}

func (w *identity) clear() {
	arch.StoreRelease64(&w.ids, 0)
	arch.StoreRelease64(&w.uids, 0)
	arch.StoreRelease64(&w.gids, 0)
	w.setUsage(Usage{})
}

func (w *identity) usage() Usage {
	return Usage{atomic.LoadUint64(&w.utimeNs), atomic.LoadUint64(&w.stimeNs), atomic.LoadUint64(&w.switches)}
}

func (w *identity) setUsage(u Usage) {
	arch.StoreRelease64(&w.utimeNs, u.UtimeNs)
	arch.StoreRelease64(&w.stimeNs, u.StimeNs)
	arch.StoreRelease64(&w.switches, u.Switches)
}

func (w *identity) add(u *Usage) {
	sum := w.usage()
	sum.Add(u)
	w.setUsage(sum)
}

// Usage is what a task, or a process, has used.
type Usage struct {
	UtimeNs, StimeNs uint64 // processor time in user and kernel mode, ns
	Switches         uint64 // context switches, voluntary or not
}

// Add adds v to u.
func (u *Usage) Add(v *Usage) {
	u.UtimeNs += v.UtimeNs
	u.StimeNs += v.StimeNs
	u.Switches += v.Switches
}

// Info is a task as Engine.Info shows it. Numbers are the root namespace's.
type Info struct {
	table.Hot
	PGID, SID            uint32 // 0: in no group or session that the engine knows
	UID, EUID, GID, EGID uint32
	Level                uint32 // of its PID namespace
	Usage                Usage  // of a leader: with that of threads that have ended
}

// Info copies what is known of a task that was made by request. Lock-free: each of
// group with session, user ids, group ids is whole, and all are of one life. ok is
// false if there is no such task.
func (e *Engine) Info(tid uint32, i *Info) (ok bool) {
	slot, w := e.look(tid, &i.Hot)
	if w == nil {
		return false
	}
	lead := w
	if i.TGID != tid {
		var h table.Hot
		if _, lead = e.look(i.TGID, &h); lead == nil {
			return false
		}
	}
	i.PGID, i.SID = lead.pgid(), lead.sid()
	uids, gids := atomic.LoadUint64(&w.uids), atomic.LoadUint64(&w.gids)
	i.UID, i.EUID, i.GID, i.EGID = uint32(uids), uint32(uids>>32), uint32(gids), uint32(gids>>32)
	i.Usage = w.usage()
	if ns := e.pids.NamespaceOf(slot); ns != nil {
		i.Level = ns.Level()
	}
	var again table.Hot
	return e.tab.Read(slot, &again) && again.TID == tid && again.Gen == i.Gen // F
}

// look finds the record and the identity of a task that was made by request.
func (e *Engine) look(tid uint32, h *table.Hot) (slot uint32, w *identity) {
	slot = e.ids.Find(tid)
	if slot == 0 || !e.tab.Read(slot, h) || h.TID != tid {
		return 0, nil
	}
	return slot, e.who.Peek(slot)
}

// Ancestors appends the parent of process tgid, its parent, and so on, to dst, as
// far as dst has room, and returns it. Lock-free: each step is what was true at
// some moment of the call.
func (e *Engine) Ancestors(tgid uint32, dst []uint32) []uint32 {
	var h table.Hot
	for len(dst) < cap(dst) && e.ids.Read(tgid, &h) && h.PPID != 0 {
		tgid = h.PPID
		dst = append(dst, tgid)
	}
	return dst
}

// Account adds to the counters of task tid. ESRCH: no such task.
func (e *Engine) Account(tid uint32, u Usage) error {
	e.lock()
	defer e.unlock()
	slot := e.findRequested(tid)
	if slot == 0 {
		return fmt.Errorf("account for task %d: %w", tid, unix.ESRCH)
	}
	e.who.At(slot).add(&u)
	return nil
}

// ProcessUsage is the sum over all threads of a process, those that have ended
// included: it never falls (CASES.md B53). ok is false if there is none.
func (e *Engine) ProcessUsage(tgid uint32) (sum Usage, ok bool) {
	e.lock()
	defer e.unlock()
	leader := e.leaderOf(tgid)
	if leader == 0 || e.recs.at(leader).flags&requested == 0 {
		return sum, false
	}
	return e.processUsageLocked(leader), true
}

func (e *Engine) processUsageLocked(leader uint32) (sum Usage) {
	for slot := leader; ; {
		u := e.who.At(slot).usage()
		sum.Add(&u)
		if slot = e.recs.at(slot).next; slot == leader {
			return sum
		}
	}
}

// Same, given as an id, leaves it as it is.
const Same = ^uint32(0)

// SetUID changes the real and the effective user id of a task, as setreuid: EPERM
// unless it is privileged (effective user 0) or each is one of the two that it has.
// ESRCH: no such task.
func (e *Engine) SetUID(tid, ruid, euid uint32) error {
	return e.setCred(tid, ruid, euid, func(w *identity) *uint64 { return &w.uids })
}

// SetGID is SetUID for group ids, as setregid.
func (e *Engine) SetGID(tid, rgid, egid uint32) error {
	return e.setCred(tid, rgid, egid, func(w *identity) *uint64 { return &w.gids })
}

func (e *Engine) setCred(tid, r, eff uint32, word func(*identity) *uint64) error {
	e.lock()
	defer e.unlock()
	slot, err := e.callerLocked(tid)
	if err != nil {
		return fmt.Errorf("set credentials of task %d: %w", tid, err)
	}
	w := e.who.At(slot)
	at := word(w)
	real, effective := uint32(*at), uint32(*at>>32)
	mine := func(id uint32) bool { return id == Same || id == real || id == effective }
	if w.euid() != 0 && (!mine(r) || !mine(eff)) {
		return fmt.Errorf("set credentials of task %d: %w", tid, unix.EPERM)
	}
	if r != Same {
		real = r
	}
	if eff != Same {
		effective = eff
	}
	arch.StoreRelease64(at, uint64(real)|uint64(effective)<<32)
	return nil
}
