package main

import (
	"math/bits"

	"github.com/dave/jennifer/jen"
)

// emitQueue emits a block of kind "queue": work that many writers defer to one
// consumer, handed over by the batch.
//
//	queue Queue batch=64 items=4096
//
// Busted variant: publish (a batch is handed over before its last item is stored).
func emitQueue(f *jen.File, b *block) error {
	on := flags{}
	if err := b.allow("batch", "items", "for", "busted", "delay"); err != nil {
		return err
	}
	if len(b.items) > 0 {
		return b.items[0].pos.errorf("queue %s has no items, got %q", b.name, b.items[0].words[0])
	}
	if b.name == "T" {
		return b.pos.errorf("queue T: T is the type of its items")
	}
	if err := b.claim(b.pos, b.name, b.name+"Writer"); err != nil {
		return err
	}
	if err := b.testFlags(on, "publish"); err != nil {
		return err
	}
	batch, items, err := b.ring()
	if err != nil {
		return err
	}
	w := newWriter(map[string]any{
		"Q": b.name, "q": lowerFirst(b.name), "batch": batch, "items": items,
		"batchShift": bits.Len(uint(batch)) - 2, "itemsShift": bits.Len(uint(items)) - 3,
	})
	f.Add(w.text(on, queueConsts))
	f.Add(jen.Line().Add(docAbove(b, w, queueHeader)).Add(w.text(on, queueTypes)))
	f.Add(w.text(on, queueMethods))
	return nil
}

const queueConsts = `
const (
	{q}Batch = {batch} >> ({batchShift} * arch.Stress) // items handed over at once
	{q}Items = {items} >> ({itemsShift} * arch.Stress) // items of a writer that may wait, a power of two
)`

const queueHeader = `
{Q} takes work of type T that writers put off, and gives it to one consumer. Each
writer has a ring of its own and hands over {batch} items by one store. The zero
value is an empty queue; it is not copied.

Invariants, for each writer.

	I1. taken <= handed <= tail <= taken + {items}, counted in items.
	I2. The slots of items from taken to handed are the consumer's, all others
	    the writer's.
	I3. Items are taken once, in the order of Push.
	I4. A writer is dropped from the list when it is closed and all is taken.

Writers and readers. A writer belongs to one goroutine at a time; it stores tail
and handed. One consumer at a time, held by a mutex, stores taken.

Ordering.

	A. The store of handed comes after the stores of the items below it
	   (release). Pairs with B.
	B. Drain loads handed before the items (acquire).
	C. The store of taken comes after the consumer's last use of the items below
	   it (release). Pairs with D.
	D. Push loads taken before it stores into the slots below it (acquire).
	E. Close stores closed after A. Pairs with the load in Drain, which comes
	   before B: a queue seen closed has no more items than B shows.

What a consumer sees. Whole batches, and what Flush handed over; never an item
that was not stored. Items of one writer in order, of several in none.

Lifetime. The items that Drain shows are valid until its callback returns; the
ring then drops them.

Progress. Push is wait-free, writers share no cache line. Nothing waits: a full
ring is false. Drain is bounded by what was handed over when it looked.

Source: Lamport, "Specifying concurrent program modules" (1983), the ring of one
writer and one reader; published by the batch.`

const queueTypes = `
type {Q}[T any] struct {
	drain   sync.Mutex                          // held by the consumer
	mu      sync.Mutex                          // held to change the list
	writers atomic.Pointer[[]*{Q}Writer[T]]     // atomic; nil: none
}

// {Q}Writer is one writer's side of a queue. One goroutine uses it at a time.
type {Q}Writer[T any] struct {
	_     arch.NoCopy
	items []T // item n is in n%{q}Items; immutable slice
	tail  uint64
	stop  uint64 // where Push looks up: the batch or the ring is full
	_     arch.Pad
	handed atomic.Uint64 // stored by the writer
	closed atomic.Bool   // stored by the writer
	_      arch.Pad
	taken  atomic.Uint64 // stored by the consumer
	_      arch.Pad
}`

const queueMethods = `
// Writer returns a new writer.
func (q *{Q}[T]) Writer() *{Q}Writer[T] {
	w := &{Q}Writer[T]{items: make([]T, {q}Items), stop: {q}Batch}
	q.mu.Lock()
	defer q.mu.Unlock()
	list := append(slices.Clone(q.list()), w)
	q.writers.Store(&list)
	return w
}

func (q *{Q}[T]) list() []*{Q}Writer[T] {
	if list := q.writers.Load(); list != nil {
		return *list
	}
	return nil
}

// Push puts an item into the writer's batch, and hands the batch over when it is
// full. It returns false, and takes nothing, when {items} items wait.
func (w *{Q}Writer[T]) Push(item T) bool {
	if w.tail == w.stop && !w.room() {
		return false
	}
	slot := &w.items[w.tail%{q}Items]
	w.tail++
[!publish]	*slot = item
	if w.tail == w.stop {
		w.Flush()
[delay]		{q}Delay()
	}
[publish]	*slot = item
	return true
}

// room reports whether the ring has room again.
func (w *{Q}Writer[T]) room() bool {
	w.stop = min(w.tail+{q}Batch, w.taken.Load()+{q}Items) // D
	return w.tail != w.stop
}

// Flush hands over what the batch holds.
func (w *{Q}Writer[T]) Flush() {
	w.handed.Store(w.tail) // A
	w.room()
}

// Close hands over what the batch holds and ends the use of the writer.
func (w *{Q}Writer[T]) Close() {
	w.handed.Store(w.tail) // A
	w.closed.Store(true) // E
}

// Drain calls run with all items that were handed over, in slices of at most
// {items} that run does not keep, and returns their number. A second Drain waits
// for the first; run must not call it.
func (q *{Q}[T]) Drain(run func(items []T)) (total int) {
	q.drain.Lock()
	defer q.drain.Unlock()
	for _, w := range q.list() {
		closed := w.closed.Load() // E
		total += w.take(run)
		if closed {
			q.drop(w)
		}
	}
	return total
}

// take gives the writer's items to run.
func (w *{Q}Writer[T]) take(run func(items []T)) int {
	head, end := w.taken.Load(), w.handed.Load() // B
	if head == end {
		return 0
	}
	from, to := head%{q}Items, (end-1)%{q}Items+1
	if from < to {
		w.show(w.items[from:to], run)
	} else {
		w.show(w.items[from:], run)
		w.show(w.items[:to], run)
	}
	w.taken.Store(end) // C
	return int(end - head)
}

func (w *{Q}Writer[T]) show(items []T, run func(items []T)) {
	run(items)
	clear(items)
}

func (q *{Q}[T]) drop(w *{Q}Writer[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := slices.Clone(q.list())
	i := slices.Index(list, w)
	list = slices.Delete(list, i, i+1)
	q.writers.Store(&list)
}`
