package structures

import (
	"fmt"
	"testing"
)

var sizes = []struct {
	name string
	n    int
}{{"1k", 1 << 10}, {"32k", 1 << 15}, {"1M", 1 << 20}}

// lookupRows compare lookups, and lookups beside a writer at full speed.
func lookupRows() (rows []row) {
	for _, size := range sizes {
		for odd, what := range []string{"hit", "miss"} {
			for threads := 1; threads <= 2; threads++ {
				r := row{
					name:    fmt.Sprintf("%s/keys=%s/threads=%d", what, size.name, threads),
					threads: threads, ops: 1000, heavy: size.n > 1<<15,
				}
				k := keys{uint32(size.n) - 1, uint32(odd)}
				for _, c := range []newTable{tree22GC, tree22, tree22Slab, tree64, generic, xsyncMap, syncMap, rwMutexMap, rbMutexMap, googleBTree} {
					r.contenders = append(r.contenders, c.lookups(size.n, k, false))
				}
				args := []string{"lookup", fmt.Sprint(threads), fmt.Sprint(size.n), fmt.Sprint(odd)}
				r.contenders = append(r.contenders, urcuQSBR.contender("rculfhash", args...),
					urcuMemb.contender("rculfhash", args...), ck.contender("ht", args...))
				rows = append(rows, r)
			}
		}
	}
	beside := row{name: "hit/keys=32k/threads=1/writer=full", threads: 1, ops: 100}
	for _, c := range []newTable{tree22GC, tree64, xsyncMap, syncMap, rwMutexMap, rbMutexMap} {
		beside.contenders = append(beside.contenders, c.lookups(1<<15, keys{mask: 1<<15 - 1}, true))
	}
	return append(rows, beside)
}

// lookups is the contender that looks keys up, beside one that changes others.
func (c newTable) lookups(n int, k keys, writer bool) contender {
	return contender{name: c.name, setUp: func() bench {
		t := c.make(n)
		misses := int(k.odd)
		b := bench{loop: func(_, ops int, base uint64) (good int) {
			found := t.lookup(k, ops, base)
			return found + misses*(ops-2*found) // ops-found for misses
		}}
		if writer {
			b.beside = func(base uint64) { t.change(k, 1, 64, 64*base) }
		}
		return b
	}}
}

// changeRows compare an insertion and a deletion, kpidd's with a tag set between,
// beside 32k resident records. Only what is safe for it has two threads.
func changeRows() (rows []row) {
	for threads, contenders := range [][]newTable{
		{tree22GC, tree22, tree64, xsyncMap, syncMap, rwMutexMap, rbMutexMap, googleBTree},
		{tree64, xsyncMap, syncMap, rwMutexMap, rbMutexMap},
	} {
		threads++
		r := row{name: fmt.Sprintf("insert+delete/keys=32k/threads=%d", threads), threads: threads, ops: 100}
		for _, c := range contenders {
			r.contenders = append(r.contenders, contender{name: c.name, setUp: func() bench {
				t := c.make(1 << 15)
				return bench{loop: func(thread, ops int, base uint64) int {
					return t.change(keys{mask: 1<<15 - 1}, thread, ops, base)
				}}
			}})
		}
		rows = append(rows, r)
	}
	return rows
}

// walkRows compare walks over the 1,000 tagged of 100,000 records.
func walkRows() []row {
	const n, tagged = 100_000, 1000
	r := row{name: "tagged=1000/of=100k", threads: 1, ops: 1}
	for _, c := range []newTable{tree22GC, tree22, tree64, taggedBTree, googleBTree, xsyncMap, syncMap, rwMutexMap} {
		r.contenders = append(r.contenders, contender{name: c.name, setUp: func() bench {
			t := c.make(n)
			return bench{loop: func(_, ops int, _ uint64) int { return t.walk(ops) / tagged }}
		}})
	}
	return []row{r}
}

func BenchmarkLookup(b *testing.B) { benchmark(b, lookupRows()) }
func BenchmarkChange(b *testing.B) { benchmark(b, changeRows()) }
func BenchmarkWalk(b *testing.B)   { benchmark(b, walkRows()) }
