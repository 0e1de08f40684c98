package radix

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is a tree and the plain map that it must equal.
type model struct {
	t       testing.TB
	s       shape
	mem     Tree22Memory
	tree    tree
	keys    []uint32 // that operations choose from
	entries map[uint32]*modelEntry
	backed  map[int]int // calls of back, by page
}

type modelEntry struct {
	slot uint32
	tags [4]bool
}

func newModel(t testing.TB, s shape) *model {
	m := &model{t: t, s: s, mem: s.memory(), keys: s.borderKeys(), entries: map[uint32]*modelEntry{}, backed: map[int]int{}}
	m.tree = s.new(t, m.mem, func(page int) error {
		m.backed[page]++
		return nil
	})
	return m
}

// step does one operation on both: what says which, at which key, arg is a slot
// or a tag.
func (m *model) step(what, at byte, arg uint32) {
	m.t.Helper()
	key := m.keys[int(at)%len(m.keys)]
	e := m.entries[key]
	tag := 0
	if m.s.tags > 0 {
		tag = int(arg) % m.s.tags
	}
	switch op := what % 6; {
	case op == 0:
		want := uint32(0)
		if e != nil {
			want = e.slot
		}
		old, err := m.tree.Insert(key, arg|1)
		if err != nil || old != want {
			m.t.Fatalf("Insert(%d): got %d, %v, want %d", key, old, err, want)
		}
		if e == nil {
			e = &modelEntry{}
			m.entries[key] = e
		}
		e.slot = arg | 1
	case op == 1 && e == nil:
		if err := m.tree.InsertNew(key, arg|1); err != nil {
			m.t.Fatalf("InsertNew(%d): %v", key, err)
		}
		m.entries[key] = &modelEntry{slot: arg | 1}
	case op == 2:
		want := uint32(0)
		if e != nil {
			want = e.slot
		}
		if old := m.tree.Delete(key); old != want {
			m.t.Fatalf("Delete(%d): got %d, want %d", key, old, want)
		}
		delete(m.entries, key)
	case m.s.tags == 0:
	case (op == 3 || op == 4) && e != nil:
		m.tree.SetTag(key, tag)
		e.tags[tag] = true
	case op == 5:
		m.tree.ClearTag(key, tag)
		if e != nil {
			e.tags[tag] = false
		}
	}
}

// compare compares everything.
func (m *model) compare() {
	m.t.Helper()
	all := slices.Sorted(maps.Keys(m.entries))
	m.compareWalk("GangAll", m.expect(all, -1), m.tree.GangAll)
	for tag := range m.s.tags {
		want := m.expect(all, tag)
		m.compareWalk("Gang", want, func(from uint32, buf []entry) (int, uint32, bool) {
			return m.tree.Gang(from, tag, buf)
		})
		var got []entry
		for from := uint32(0); ; {
			key, slot, ok := m.tree.NextTagged(from, tag)
			if !ok {
				break
			}
			got = append(got, entry{key, slot})
			from = key + 1
		}
		if !slices.Equal(got, want) {
			m.t.Fatalf("tag %d, NextTagged: got %v, want %v", tag, got, want)
		}
		m.compareSummary(tag)
	}
	for _, key := range m.keys {
		want := modelEntry{}
		if e := m.entries[key]; e != nil {
			want = *e
		}
		if got := m.tree.Lookup(key); got != want.slot {
			m.t.Fatalf("Lookup(%d): got %d, want %d", key, got, want.slot)
		}
		for tag := range m.s.tags {
			if got := m.tree.Tagged(key, tag); got != want.tags[tag] {
				m.t.Fatalf("Tagged(%d, %d): got %v, want %v", key, tag, got, want.tags[tag])
			}
		}
	}
	if got := m.tree.Pages(); got != len(m.backed) {
		m.t.Fatalf("Pages: got %d, want %d", got, len(m.backed))
	}
	for page, calls := range m.backed {
		if calls != 1 {
			m.t.Fatalf("back(%d) was called %d times, want 1", page, calls)
		}
	}
}

// expect returns the entries of keys that have the tag, all for tag -1.
func (m *model) expect(keys []uint32, tag int) []entry {
	var list []entry
	for _, key := range keys {
		if e := m.entries[key]; tag < 0 || e.tags[tag] {
			list = append(list, entry{key, e.slot})
		}
	}
	return list
}

// compareWalk walks in batches of several sizes, from several keys on.
func (m *model) compareWalk(name string, want []entry, walk func(from uint32, buf []entry) (int, uint32, bool)) {
	m.t.Helper()
	for _, size := range []int{1, 3, 33} {
		for _, start := range []uint32{0, m.keys[len(m.keys)/2], m.s.keys - 1, m.s.keys} {
			rest := want[sortedIndex(want, start):]
			buf := make([]entry, size)
			for from, more := start, true; more; {
				var n int
				n, from, more = walk(from, buf)
				if more && n != size {
					m.t.Fatalf("%s stops after %d of %d entries with more", name, n, size)
				}
				if n > len(rest) || !slices.Equal(buf[:n], rest[:n]) {
					m.t.Fatalf("%s from %d in batches of %d: got %v, want %v", name, start, size, buf[:n], rest)
				}
				rest = rest[n:]
			}
			if len(rest) > 0 {
				m.t.Fatalf("%s from %d in batches of %d ends before %v", name, start, size, rest)
			}
		}
	}
}

func sortedIndex(list []entry, from uint32) int {
	i, _ := slices.BinarySearchFunc(list, from, func(e entry, key uint32) int { return int(e.Key) - int(key) })
	return i
}

// compareSummary checks I3 in the memory itself.
func (m *model) compareSummary(tag int) {
	m.t.Helper()
	sum := m.s.summary(m.mem, tag)
	for page := range m.s.pages {
		want := slices.ContainsFunc(m.s.leaf(m.mem, tag, page), func(w uint64) bool { return w != 0 })
		if got := sum[page/64]>>(page%64)&1 != 0; got != want {
			m.t.Fatalf("I3: tag %d, page %d: summary bit %v, leaf has tags %v", tag, page, got, want)
		}
	}
}

func TestModelTree(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		rounds := 20_000
		if testing.Short() {
			rounds = 3_000
		}
		m := newModel(t, s)
		r := rand.New(rand.NewPCG(1, uint64(s.keys)))
		for i := range rounds {
			m.step(byte(r.Uint32()), byte(r.Uint32()), r.Uint32())
			if i%100 == 0 {
				m.compare()
			}
		}
		for key := range m.entries {
			m.tree.Delete(key)
			delete(m.entries, key)
		}
		m.compare()
	})
}

func FuzzTree(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 0, 0, 2, 0, 0})
	f.Add([]byte{1, 1, 2, 3, 1, 0, 3, 1, 1, 3, 1, 2, 5, 1, 1, 2, 1, 0})
	f.Add([]byte{0, 13, 9, 3, 13, 0, 0, 14, 9, 3, 14, 0, 5, 13, 0, 2, 14, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		for _, s := range shapes[1:] {
			m := newModel(t, s)
			for i := 0; i+3 <= len(ops) && i < 3*256; i += 3 {
				m.step(ops[i], ops[i+1], uint32(ops[i+2]))
			}
			m.compare()
		}
	})
}
