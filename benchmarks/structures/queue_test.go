package structures

import (
	"runtime"
	"testing"

	"github.com/kpidd/kpidd/generated/deferred"
	"github.com/puzpuzpuz/xsync/v3"
)

const (
	queueItems = 4096    // items that may wait
	queueTries = 1 << 22 // looks at a queue that stays full or empty
)

// queue hands items from one goroutine to another, or to itself. What the loops
// call for each item is a method of a concrete type.
type queue struct {
	pairs func(ops int) int // one goroutine puts in and takes out
	put   func(ops int) int // one goroutine's half
	take  func(ops int) int // the other's
}

func newDeferred() queue {
	q := new(deferred.Queue[uint64])
	w := q.Writer()
	count := func(items []uint64) {}
	put := func(ops int) (done int) {
		for tries := 0; done < ops && tries < queueTries; {
			if w.Push(uint64(done)) {
				done, tries = done+1, 0
				continue
			}
			tries++
			runtime.Gosched()
		}
		w.Flush()
		return done
	}
	take := func(ops int) (done int) {
		for tries := 0; done < ops && tries < queueTries; tries++ {
			if n := q.Drain(count); n > 0 {
				done, tries = done+n, 0
			} else {
				runtime.Gosched()
			}
		}
		return done
	}
	return queue{
		pairs: func(ops int) (done int) {
			for ops > 0 {
				n := min(ops, queueItems/4)
				if put(n) != n {
					return 0
				}
				done += take(n)
				ops -= n
			}
			return done
		},
		put: put, take: take,
	}
}

func newMPMC() queue {
	q := xsync.NewMPMCQueueOf[uint64](queueItems)
	return queue{
		pairs: func(ops int) (done int) {
			for i := range ops {
				q.TryEnqueue(uint64(i))
				if _, ok := q.TryDequeue(); ok {
					done++
				}
			}
			return done
		},
		put: func(ops int) (done int) {
			for tries := 0; done < ops && tries < queueTries; {
				if q.TryEnqueue(uint64(done)) {
					done, tries = done+1, 0
					continue
				}
				tries++
				runtime.Gosched()
			}
			return done
		},
		take: func(ops int) (done int) {
			for tries := 0; done < ops && tries < queueTries; {
				if _, ok := q.TryDequeue(); ok {
					done, tries = done+1, 0
					continue
				}
				tries++
				runtime.Gosched()
			}
			return done
		},
	}
}

func newChannel() queue {
	q := make(chan uint64, queueItems)
	return queue{
		pairs: func(ops int) int {
			for i := range ops {
				q <- uint64(i)
				<-q
			}
			return ops
		},
		put: func(ops int) int {
			for i := range ops {
				q <- uint64(i)
			}
			return ops
		},
		take: func(ops int) int {
			for range ops {
				<-q
			}
			return ops
		},
	}
}

// queueRows compare an item put in and taken out, by one goroutine and by two.
func queueRows() []row {
	pairs := row{name: "put+take/threads=1", threads: 1, ops: 1000}
	two := row{name: "put,take/threads=2", threads: 2, ops: 1000}
	for _, c := range []struct {
		name string
		make func() queue
	}{{"kpidd.deferred", newDeferred}, {"xsync.MPMCQueueOf", newMPMC}, {"channel", newChannel}} {
		pairs.contenders = append(pairs.contenders, contender{name: c.name, setUp: func() bench {
			q := c.make()
			return bench{loop: func(_, ops int, _ uint64) int { return q.pairs(ops) }}
		}})
		two.contenders = append(two.contenders, contender{name: c.name, setUp: func() bench {
			q := c.make()
			return bench{loop: func(thread, ops int, _ uint64) int {
				if thread == 0 {
					return q.put(ops)
				}
				return q.take(ops)
			}}
		}})
	}
	pairs.contenders = append(pairs.contenders, ck.contender("ring_spsc", "ring", "1"))
	two.contenders = append(two.contenders, ck.contender("ring_spsc", "ring", "2"))
	return []row{pairs, two}
}

func BenchmarkQueue(b *testing.B) { benchmark(b, queueRows()) }
