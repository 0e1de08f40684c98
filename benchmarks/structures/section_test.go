package structures

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kpidd/kpidd/generated/epoch"
	"github.com/kpidd/kpidd/generated/srcu"
	"github.com/puzpuzpuz/xsync/v3"
)

// A read-side critical section holds one load. The loops of epoch and srcu do four
// sections a turn and carry no sum: around a call into assembly every variable is
// stored and loaded again, which would be measured along.

//go:noinline
func epochSections(r *epoch.Reader, p *atomic.Uint64, ops int) int {
	for range (ops + 3) / 4 {
		r.Enter()
		if p.Load() != 0 {
			return 0
		}
		r.Exit()
		r.Enter()
		if p.Load() != 0 {
			return 0
		}
		r.Exit()
		r.Enter()
		if p.Load() != 0 {
			return 0
		}
		r.Exit()
		r.Enter()
		if p.Load() != 0 {
			return 0
		}
		r.Exit()
	}
	return ops
}

//go:noinline
func srcuSections(r *srcu.Reader, p *atomic.Uint64, ops int) int {
	for range (ops + 3) / 4 {
		i := r.ReadLock()
		if p.Load() != 0 {
			return 0
		}
		r.ReadUnlock(i)
		i = r.ReadLock()
		if p.Load() != 0 {
			return 0
		}
		r.ReadUnlock(i)
		i = r.ReadLock()
		if p.Load() != 0 {
			return 0
		}
		r.ReadUnlock(i)
		i = r.ReadLock()
		if p.Load() != 0 {
			return 0
		}
		r.ReadUnlock(i)
	}
	return ops
}

//go:noinline
func rwMutexSections(mu *sync.RWMutex, p *atomic.Uint64, ops int) int {
	for range ops {
		mu.RLock()
		if p.Load() != 0 {
			return 0
		}
		mu.RUnlock()
	}
	return ops
}

//go:noinline
func rbMutexSections(mu *xsync.RBMutex, p *atomic.Uint64, ops int) int {
	for range ops {
		token := mu.RLock()
		if p.Load() != 0 {
			return 0
		}
		mu.RUnlock(token)
	}
	return ops
}

// readers is a way to tell when readers have left: sections of thread 0 and 1,
// beside some handles that are outside, and a grace period. For a lock, that is
// to take it and give it back.
type readers struct {
	sections func(thread, ops int) int
	wait     func(ops int) int
}

func newEpoch(idle int) readers {
	d, p, ctx := epoch.NewDomain(), new(atomic.Uint64), context.Background()
	r := [2]*epoch.Reader{d.Register("0"), d.Register("1")}
	for range idle {
		d.Register("idle")
	}
	return readers{
		func(thread, ops int) int { return epochSections(r[thread], p, ops) },
		func(ops int) int {
			for range ops {
				must(d.Synchronize(ctx))
			}
			return ops
		},
	}
}

func newSRCU(idle int) readers {
	d, p, ctx := srcu.NewDomain(), new(atomic.Uint64), context.Background()
	r := [2]*srcu.Reader{d.Register("0"), d.Register("1")}
	for range idle {
		d.Register("idle")
	}
	return readers{
		func(thread, ops int) int { return srcuSections(r[thread], p, ops) },
		func(ops int) int {
			for range ops {
				must(d.Synchronize(ctx))
			}
			return ops
		},
	}
}

func newRWMutexReaders(int) readers {
	mu, p := new(sync.RWMutex), new(atomic.Uint64)
	return readers{
		func(_, ops int) int { return rwMutexSections(mu, p, ops) },
		func(ops int) int {
			for range ops {
				mu.Lock()
				//lint:ignore SA2001 waits for the readers
				mu.Unlock()
			}
			return ops
		},
	}
}

func newRBMutexReaders(int) readers {
	mu, p := xsync.NewRBMutex(), new(atomic.Uint64)
	return readers{
		func(_, ops int) int { return rbMutexSections(mu, p, ops) },
		func(ops int) int {
			for range ops {
				mu.Lock()
				//lint:ignore SA2001 waits for the readers
				mu.Unlock()
			}
			return ops
		},
	}
}

var readerKinds = []struct {
	name string
	make func(idle int) readers
}{
	{"kpidd.epoch", newEpoch},
	{"kpidd.srcu", newSRCU},
	{"xsync.RBMutex", newRBMutexReaders},
	{"sync.RWMutex", newRWMutexReaders},
}

// sectionRows compare entering and leaving a section.
func sectionRows() (rows []row) {
	for threads := 1; threads <= 2; threads++ {
		r := row{name: fmt.Sprintf("threads=%d", threads), threads: threads, ops: 1000}
		for _, c := range readerKinds {
			r.contenders = append(r.contenders, contender{name: c.name, setUp: func() bench {
				s := c.make(0)
				return bench{loop: func(thread, ops int, _ uint64) int { return s.sections(thread, ops) }}
			}})
		}
		args := []string{"section", fmt.Sprint(threads)}
		for _, f := range []flavour{urcuQSBR, urcuMemb, urcuMB, ck} {
			r.contenders = append(r.contenders, f.contender("section", args...))
		}
		rows = append(rows, r)
	}
	return rows
}

// graceRows compare grace periods beside 16 handles: all outside, and one of them
// inside sections again and again.
func graceRows() (rows []row) {
	for _, what := range []string{"idle", "busy"} {
		r := row{name: what + "/readers=16", threads: 1, ops: 10}
		for _, c := range readerKinds {
			r.contenders = append(r.contenders, contender{name: c.name, setUp: func() bench {
				s := c.make(14)
				b := bench{loop: func(_, ops int, _ uint64) int { return s.wait(ops) }}
				if what == "busy" {
					b.beside = func(uint64) { s.sections(1, 100) }
				}
				return b
			}})
		}
		for _, f := range []flavour{urcuQSBR, urcuMemb, urcuMB, ck} {
			r.contenders = append(r.contenders, f.contender("synchronize", "grace", what, "16"))
		}
		rows = append(rows, r)
	}
	return rows
}

func BenchmarkSection(b *testing.B) { benchmark(b, sectionRows()) }
func BenchmarkGrace(b *testing.B)   { benchmark(b, graceRows()) }
