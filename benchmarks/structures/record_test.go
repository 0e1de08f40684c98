package structures

import (
	"sync"
	"testing"

	"github.com/kpidd/kpidd/generated/epoch"
	"github.com/kpidd/kpidd/generated/radix"
	"github.com/kpidd/kpidd/generated/seqlock"
	"github.com/puzpuzpuz/xsync/v3"
)

// recordRows compare a lookup with a consistent copy of the 64 bytes found.
func recordRows() []row {
	const n = 1 << 15
	r := row{name: "lookup+copy/bytes=64/keys=32k", threads: 1, ops: 1000}
	k := keys{mask: n - 1}
	for _, c := range []struct {
		name string
		make func(n int) func(k keys, ops int, base uint64) int
	}{
		{"kpidd.Tree22GC+Rec64", newTreeRecords},
		{"kpidd.epoch+Tree22Slab+Rec64", newSlabRecords},
		{"xsync.MapOf+Rec64", newXsyncRecords},
		{"map+RWMutex", newMapRecords},
	} {
		r.contenders = append(r.contenders, contender{name: c.name, setUp: func() bench {
			copies := c.make(n)
			return bench{loop: func(_, ops int, base uint64) int { return copies(k, ops, base) }}
		}})
	}
	return []row{r}
}

func newTreeRecords(n int) func(k keys, ops int, base uint64) int {
	t := radix.NewTree22GC[seqlock.Rec64]()
	for i := range n {
		must(t.InsertNew(2*uint32(i), new(seqlock.Rec64)))
	}
	return func(k keys, ops int, base uint64) int { return copyTree(t, k, ops, base) }
}

//go:noinline
func copyTree(t *radix.Tree22GC[seqlock.Rec64], k keys, ops int, base uint64) (whole int) {
	var dst [7]uint64
	for i := range uint64(ops) {
		if r := t.Lookup(k.at(base + i)); r != nil && r.Read(&dst) {
			whole++
		}
	}
	return whole
}

func newSlabRecords(n int) func(k keys, ops int, base uint64) int {
	t, slab, reader := radix.NewTree22Slab(), make([]seqlock.Rec64, n+1), epoch.NewDomain().Register("reader")
	for i := range n {
		must(t.InsertNew(2*uint32(i), uint64(i)+1))
	}
	return func(k keys, ops int, base uint64) int { return copySlab(t, slab, reader, k, ops, base) }
}

//go:noinline
func copySlab(t *radix.Tree22Slab, slab []seqlock.Rec64, r *epoch.Reader, k keys, ops int, base uint64) (whole int) {
	var dst [7]uint64
	for i := range uint64(ops) {
		r.Enter()
		if slot := uint32(t.Lookup(k.at(base + i))); slot != 0 && slab[slot].Read(&dst) {
			whole++
		}
		r.Exit()
	}
	return whole
}

func newXsyncRecords(n int) func(k keys, ops int, base uint64) int {
	t := xsync.NewMapOf[uint32, *seqlock.Rec64]()
	for i := range n {
		t.Store(2*uint32(i), new(seqlock.Rec64))
	}
	return func(k keys, ops int, base uint64) int { return copyXsync(t, k, ops, base) }
}

//go:noinline
func copyXsync(t *xsync.MapOf[uint32, *seqlock.Rec64], k keys, ops int, base uint64) (whole int) {
	var dst [7]uint64
	for i := range uint64(ops) {
		if r, ok := t.Load(k.at(base + i)); ok && r.Read(&dst) {
			whole++
		}
	}
	return whole
}

func newMapRecords(n int) func(k keys, ops int, base uint64) int {
	var mu sync.RWMutex
	t := make(map[uint32]*[7]uint64, n)
	for i := range n {
		t[2*uint32(i)] = &[7]uint64{1}
	}
	return func(k keys, ops int, base uint64) int { return copyMap(&mu, t, k, ops, base) }
}

//go:noinline
func copyMap(mu *sync.RWMutex, t map[uint32]*[7]uint64, k keys, ops int, base uint64) (whole int) {
	for i := range uint64(ops) {
		var dst [7]uint64
		mu.RLock()
		if r := t[k.at(base+i)]; r != nil {
			dst = *r
		}
		mu.RUnlock()
		whole += int(dst[0])
	}
	return whole
}

func BenchmarkRecord(b *testing.B) { benchmark(b, recordRows()) }
