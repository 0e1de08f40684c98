package task

import "github.com/kpidd/kpidd/core/table"

// ObserveFree applies the reaping of an ended process, for sources that tell it.
func (e *Engine) ObserveFree(tgid uint32, atNs uint64) {
	p := leftover{now: true}
	e.lock()
	defer e.unlockAnd(&p)
	if slot := e.leaderOf(tgid); slot != 0 && e.recs.at(slot).flags&ended != 0 && e.recs.at(slot).seenNs < atNs {
		e.releaseLocked(slot, &p)
	}
}

// zombieLastsNs is after what time a zombie is not just about to be reaped.
const zombieLastsNs = 1e9

// ReapGone looks at up to most zombies, longest unseen first, and releases those
// whose number gone says nobody has any more. Those that have stayed for a second,
// and of which something is an estimate, get a check; while they wait for it, which
// takes long when they are many, they are looked at too, and first. It returns how
// many it looked at. Most sources do not tell of reaping, so the follower asks the
// kernel.
func (e *Engine) ReapGone(most int, nowNs uint64, gone func(tgid uint32) bool) (looked int) {
	p := leftover{now: true}
	e.lock()
	defer e.unlockAnd(&p)
	checks := min(most/2, int(e.queues[zombieCheckQueue].n))
	zombies := min(most-checks, int(e.queues[zombieQueue].n))
	for range checks {
		slot := e.queues[zombieCheckQueue].head
		r := e.recs.at(slot)
		if gone(r.tid) {
			e.releaseLocked(slot, &p)
		} else {
			e.enqueue(zombieCheckQueue, slot, r.queuedNs)
		}
	}
	for range zombies {
		slot := e.queues[zombieQueue].head
		since := e.recs.at(slot).queuedNs
		var h table.Hot
		switch e.tab.Get(slot, &h); {
		case gone(h.TID):
			e.releaseLocked(slot, &p)
		case nowNs > since+zombieLastsNs && h.Flags&(table.FlagStartEstimated|table.FlagPPIDEstimated) != 0:
			e.enqueue(zombieCheckQueue, slot, since)
		default:
			e.enqueue(zombieQueue, slot, since)
		}
	}
	return checks + zombies
}
