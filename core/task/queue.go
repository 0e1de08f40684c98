package task

// queueID names the check queue that a record waits in.
type queueID uint8

const (
	noQueue queueID = iota
	verifyQueue
	zombieQueue      // to be asked whether they were reaped
	zombieCheckQueue // they were not; to be verified like those that live
	queues
)

// queue is a first-in first-out list of slots through record.qnext and qprev.
type queue struct{ head, tail, n uint32 }

func (e *Engine) enqueue(id queueID, slot uint32, nowNs uint64) {
	e.dequeue(slot)
	r, q := e.recs.at(slot), &e.queues[id]
	r.queue, r.queuedNs, r.qprev, r.qnext = id, nowNs, q.tail, 0
	if q.tail != 0 {
		e.recs.at(q.tail).qnext = slot
	} else {
		q.head = slot
	}
	q.tail = slot
	q.n++
}

func (e *Engine) dequeue(slot uint32) {
	r := e.recs.at(slot)
	if r.queue == noQueue {
		return
	}
	q := &e.queues[r.queue]
	if r.qprev != 0 {
		e.recs.at(r.qprev).qnext = r.qnext
	} else {
		q.head = r.qnext
	}
	if r.qnext != 0 {
		e.recs.at(r.qnext).qprev = r.qprev
	} else {
		q.tail = r.qprev
	}
	q.n--
	r.queue, r.qnext, r.qprev = noQueue, 0, 0
}
