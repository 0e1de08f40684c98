package radix

import (
	"fmt"
	"testing"
)

const batch = 1000

// perOp reports the time of one operation out of a batch.
func perOp(b *testing.B, batch int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch), "ns/op")
}

// benchTree holds n keys, the even ones below 2n, of which every 100th is tagged.
func benchTree(b *testing.B, n uint32) *Tree22 {
	tr, err := NewTree22(shapes[0].memory(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if err := tr.InsertNew(2*i, i+1); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			tr.SetTag(2*i, Tree22TGID)
		}
	}
	return tr
}

// mix spreads i over 64 bits.
func mix(i uint64) uint64 {
	i *= 0x9e3779b97f4a7c15
	return i ^ i>>32
}

//go:noinline
func lookups(t *Tree22, base uint64, n uint32) (sum uint32) {
	for i := range uint64(batch) {
		sum += t.Lookup(2 * (uint32(mix(base+i)) & (n - 1)))
	}
	return sum
}

func BenchmarkLookup(b *testing.B) {
	for _, size := range []struct {
		name string
		n    uint32
	}{{"1k", 1 << 10}, {"32k", 1 << 15}, {"1M", 1 << 20}} {
		b.Run("keys="+size.name, func(b *testing.B) {
			tr := benchTree(b, size.n)
			base := uint64(0)
			for b.Loop() {
				lookups(tr, base, size.n)
				base += batch
			}
			perOp(b, batch)
		})
	}
}

// The other widths, each with the keys of BenchmarkLookup.

func flatTree(b *testing.B, n uint32) *Tree22GC[uint64] {
	tr := NewTree22GC[uint64]()
	for i := range n {
		if err := tr.InsertNew(2*i, new(uint64)); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			tr.SetTag(2*i, Tree22GCTGID)
		}
	}
	return tr
}

func deepTree(b *testing.B, n uint32) *Tree64[uint64] {
	tr := NewTree64[uint64]()
	for i := range uint64(n) {
		if err := tr.InsertNew(2*i, new(uint64)); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			tr.SetTag(2*i, Tree64TGID)
		}
	}
	return tr
}

//go:noinline
func flatLookups(t *Tree22GC[uint64], base uint64, n uint32) (found int) {
	for i := range uint64(batch) {
		if t.Lookup(2*(uint32(mix(base+i))&(n-1))) != nil {
			found++
		}
	}
	return found
}

//go:noinline
func slabLookups(t *Tree22Slab, base uint64, n uint32) (sum uint64) {
	for i := range uint64(batch) {
		sum += t.Lookup(2 * (uint32(mix(base+i)) & (n - 1)))
	}
	return sum
}

//go:noinline
func wideLookups(t *Tree32[uint64], base uint64, n uint32) (found int) {
	for i := range uint64(batch) {
		if t.Lookup(2*(uint32(mix(base+i))&(n-1))) != nil {
			found++
		}
	}
	return found
}

//go:noinline
func deepLookups(t *Tree64[uint64], base uint64, n uint32) (found int) {
	for i := range uint64(batch) {
		if t.Lookup(2*(mix(base+i)&uint64(n-1))) != nil {
			found++
		}
	}
	return found
}

//go:noinline
func hashLookups(t *Tree128[uint64], base uint64, n uint32) (found int) {
	for i := range uint64(batch) {
		if t.Lookup(Tree128Key{Lo: mix(base+i) & uint64(n-1)}) != nil {
			found++
		}
	}
	return found
}

func BenchmarkLookupWidths(b *testing.B) {
	const n = 1 << 15
	slab, wide, hashed := NewTree22Slab(), NewTree32[uint64](), NewTree128[uint64]()
	for i := range uint32(n) {
		if err := slab.InsertNew(2*i, uint64(i)+1); err != nil {
			b.Fatal(err)
		}
		if err := wide.InsertNew(2*i, new(uint64)); err != nil {
			b.Fatal(err)
		}
		if _, err := hashed.Insert(Tree128Key{Lo: uint64(i)}, new(uint64)); err != nil {
			b.Fatal(err)
		}
	}
	flat, deep, deepSmall, deepLarge := flatTree(b, n), deepTree(b, n), deepTree(b, 1<<10), deepTree(b, 1<<20)
	for _, c := range []struct {
		name string
		run  func(base uint64)
	}{
		{"type=Tree22GC/keys=32k", func(base uint64) { flatLookups(flat, base, n) }},
		{"type=Tree22Slab/keys=32k", func(base uint64) { slabLookups(slab, base, n) }},
		{"type=Tree32/keys=32k", func(base uint64) { wideLookups(wide, base, n) }},
		{"type=Tree64/keys=1k", func(base uint64) { deepLookups(deepSmall, base, 1<<10) }},
		{"type=Tree64/keys=32k", func(base uint64) { deepLookups(deep, base, n) }},
		{"type=Tree64/keys=1M", func(base uint64) { deepLookups(deepLarge, base, 1<<20) }},
		{"type=Tree128/keys=32k", func(base uint64) { hashLookups(hashed, base, n) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			base := uint64(0)
			for b.Loop() {
				c.run(base)
				base += batch
			}
			perOp(b, batch)
		})
	}
}

// One whole walk of the other types over 1,000 tagged of 100,000 keys.
func BenchmarkGangTypes(b *testing.B) {
	flat, deep := flatTree(b, 100_000), deepTree(b, 100_000)
	b.Run("type=Tree22GC", func(b *testing.B) {
		buf := make([]Tree22GCEntry[uint64], 64)
		for b.Loop() {
			for from, more := uint32(0), true; more; {
				_, from, more = flat.Gang(from, Tree22GCTGID, buf)
			}
		}
	})
	b.Run("type=Tree64", func(b *testing.B) {
		buf := make([]Tree64Entry[uint64], 64)
		for b.Loop() {
			for from, more := uint64(0), true; more; {
				_, from, more = deep.Gang(from, Tree64TGID, buf)
			}
		}
	})
}

// An insertion and a deletion, tagged between, beside 32k resident keys.
func BenchmarkInsertDeleteTypes(b *testing.B) {
	flat, deep, value := flatTree(b, 1<<15), deepTree(b, 1<<15), new(uint64)
	b.Run("type=Tree22GC", func(b *testing.B) {
		for i := uint32(0); b.Loop(); i++ {
			key := 2*(uint32(mix(uint64(i)))&(1<<15-1)) + 1
			flat.InsertNew(key, value)
			flat.SetTag(key, Tree22GCTGID)
			flat.Delete(key)
		}
	})
	b.Run("type=Tree64", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			key := 2*(mix(i)&(1<<15-1)) + 1
			deep.InsertNew(key, value)
			deep.SetTag(key, Tree64TGID)
			deep.Delete(key)
		}
	})
}

// One whole walk over 1,000 tagged of 100,000 keys.
func BenchmarkGang(b *testing.B) {
	tr := benchTree(b, 100_000)
	for _, size := range []int{64, 512} {
		b.Run(fmt.Sprintf("tagged=1000/of=100k/buf=%d", size), func(b *testing.B) {
			buf := make([]Tree22Entry, size)
			for b.Loop() {
				if n := walkTagged(tr, buf); n != 1000 {
					b.Fatalf("got %d entries, want 1000", n)
				}
			}
		})
	}
}

//go:noinline
func walkTagged(t *Tree22, buf []Tree22Entry) (total int) {
	for from, more := uint32(0), true; more; {
		var n int
		n, from, more = t.Gang(from, Tree22TGID, buf)
		total += n
	}
	return total
}

// One whole walk over all keys: 100,000 dense ones, and 1,000 spread over all
// pages.
func BenchmarkGangAll(b *testing.B) {
	spread, err := NewTree22(shapes[0].memory(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range uint32(1000) {
		if err := spread.InsertNew(i*(Tree22Keys/1000), 1); err != nil {
			b.Fatal(err)
		}
	}
	for name, tr := range map[string]*Tree22{"keys=100k": benchTree(b, 100_000), "keys=1000/spread": spread} {
		b.Run(name, func(b *testing.B) {
			buf := make([]Tree22Entry, 512)
			for b.Loop() {
				for from, more := uint32(0), true; more; {
					_, from, more = tr.GangAll(from, buf)
				}
			}
		})
	}
}

func BenchmarkNextTagged(b *testing.B) {
	tr := benchTree(b, 100_000)
	for b.Loop() {
		if n := stepTagged(tr); n != 1000 {
			b.Fatalf("got %d entries, want 1000", n)
		}
	}
	perOp(b, 1000)
}

//go:noinline
func stepTagged(t *Tree22) (total int) {
	for key, _, ok := t.NextTagged(0, Tree22TGID); ok; key, _, ok = t.NextTagged(key+1, Tree22TGID) {
		total++
	}
	return total
}

//go:noinline
func pairs(t *Tree22, base uint64, n uint32, tag bool) {
	for i := range uint64(batch) {
		key := 2*(uint32(mix(base+i))&(n-1)) + 1
		t.InsertNew(key, 1)
		if tag {
			t.SetTag(key, Tree22TGID)
		}
		t.Delete(key)
	}
}

// An insertion and a deletion beside 32k resident keys.
func BenchmarkInsertDelete(b *testing.B) {
	tr := benchTree(b, 1<<15)
	for _, tag := range []bool{false, true} {
		b.Run(fmt.Sprintf("keys=32k/tag=%v", tag), func(b *testing.B) {
			base := uint64(0)
			for b.Loop() {
				pairs(tr, base, 1<<15, tag)
				base += batch
			}
			perOp(b, batch)
		})
	}
}
