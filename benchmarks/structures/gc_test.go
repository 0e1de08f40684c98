package structures

import (
	"os"
	"runtime"
	"testing"

	"github.com/kpidd/kpidd/generated/radix"
)

// keepers keep records alive, each in a process of its own: the slab without
// pointers, and tables of records allocated one by one.
var keepers = []struct {
	name string
	make func(n int) any
}{
	{"kpidd.Tree22Slab+slab", func(n int) any {
		t := radix.NewTree22Slab()
		for i := range n {
			must(t.InsertNew(2*uint32(i), uint64(i)+1))
		}
		return &struct {
			t    *radix.Tree22Slab
			slab []record
		}{t, make([]record, n+1)}
	}},
	{"kpidd.Tree22GC", func(n int) any { return newTree22GC(n) }},
	{"kpidd.Tree64", func(n int) any { return newTree64(n) }},
	{"xsync.MapOf", func(n int) any { return newXsync(n) }},
	{"sync.Map", func(n int) any { return newSyncMap(n) }},
	{"map", func(n int) any { return newRWMutex(n) }},
	{"btree", func(n int) any { return newBTree(n) }},
}

// gcChild keeps a million records and collects garbage when it is told to.
func gcChild(name string) {
	for _, k := range keepers {
		if k.name != name {
			continue
		}
		kept := k.make(1 << 20)
		runtime.GC() // what was left over
		runtime.GC()
		serve(func(ops int) int {
			for range ops {
				runtime.GC()
			}
			return ops
		})
		runtime.KeepAlive(kept)
	}
}

// gcRows compare a whole cycle of the garbage collector.
func gcRows() []row {
	r := row{name: "cycle/records=1M", threads: 1, ops: 1, heavy: true}
	for _, k := range keepers {
		r.contenders = append(r.contenders, contender{name: k.name, setUp: func() bench {
			return start([]string{child + "=" + k.name}, os.Args[0]).bench()
		}})
	}
	return []row{r}
}

func BenchmarkGC(b *testing.B) { benchmark(b, gcRows()) }
