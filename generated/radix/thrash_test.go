package radix

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// shadow is a tree beside an array that says what it must hold.
type shadow struct {
	t     testing.TB
	k     kind
	tree  anyTree
	keys  []uint64
	cells []cell // of each key
}

type cell struct {
	value uint64 // 0 = absent
	tags  [tagsMax]bool
}

const tagsMax = 4

func newShadow(t testing.TB, k kind, keys []uint64) *shadow {
	return &shadow{t: t, k: k, tree: k.make(), keys: keys, cells: make([]cell, len(keys))}
}

// step does one operation on both: what says which, at which key, arg is a value
// or a tag.
func (s *shadow) step(what, at, arg uint32) {
	s.t.Helper()
	i := int(at) % len(s.keys)
	key, c := s.keys[i], &s.cells[i]
	value := uint64(arg | 1)
	switch op := what % 6; {
	case op == 0 && arg%2 == 0:
		old, err := s.tree.Insert(key, value)
		if err != nil || old != c.value {
			s.t.Fatalf("Insert(%d): got %d, %v, want %d", key, old, err, c.value)
		}
		c.value = value
	case op <= 1 && c.value == 0:
		if err := s.tree.InsertNew(key, value); err != nil {
			s.t.Fatalf("InsertNew(%d): %v", key, err)
		}
		c.value = value
	case op <= 2:
		if old := s.tree.Delete(key); old != c.value {
			s.t.Fatalf("Delete(%d): got %d, want %d", key, old, c.value)
		}
		*c = cell{}
	case s.k.tags == 0:
	case op <= 4 && c.value != 0:
		s.tree.SetTag(key, int(arg)%s.k.tags)
		c.tags[int(arg)%s.k.tags] = true
	default:
		s.tree.ClearTag(key, int(arg)%s.k.tags)
		c.tags[int(arg)%s.k.tags] = false
	}
}

// want returns the entries with a tag, all for tag -1.
func (s *shadow) want(tag int) (list []item) {
	for i, c := range s.cells {
		if c.value != 0 && (tag < 0 || c.tags[tag]) {
			list = append(list, item{s.keys[i], c.value})
		}
	}
	return list
}

// compare compares everything, in every way to read it.
func (s *shadow) compare() {
	s.t.Helper()
	for tag := -1; tag < s.k.tags; tag++ {
		want := s.want(tag)
		if got := walkAll(s.tree, tag, 33); !slices.Equal(got, want) {
			s.t.Fatalf("walk over tag %d: got %v, want %v", tag, got, want)
		}
		if tag < 0 && s.k.tags > 0 {
			continue
		}
		var got []item
		for key, value := range s.tree.All(tag) {
			got = append(got, item{key, value})
		}
		if !slices.Equal(got, want) {
			s.t.Fatalf("All of tag %d: got %v, want %v", tag, got, want)
		}
		if tag >= 0 {
			s.compareNext(tag, want)
		}
	}
	for i, key := range s.keys {
		if got := s.tree.Lookup(key); got != s.cells[i].value {
			s.t.Fatalf("Lookup(%d): got %d, want %d", key, got, s.cells[i].value)
		}
		for tag := range s.k.tags {
			if got := s.tree.Tagged(key, tag); got != s.cells[i].tags[tag] {
				s.t.Fatalf("Tagged(%d, %d): got %v, want %v", key, tag, got, s.cells[i].tags[tag])
			}
		}
	}
	if err := s.tree.Check(); err != nil {
		s.t.Fatal(err)
	}
}

// compareNext steps through want, and from between its keys.
func (s *shadow) compareNext(tag int, want []item) {
	s.t.Helper()
	from := uint64(0)
	for _, w := range want {
		for _, at := range []uint64{from, w.key - (w.key-from)/2, w.key} {
			if key, value, ok := s.tree.NextTagged(at, tag); !ok || key != w.key || value != w.value {
				s.t.Fatalf("NextTagged(%d, %d): got %d, %d, %v, want %v", at, tag, key, value, ok, w)
			}
		}
		if w.key == s.k.keyMax {
			return
		}
		from = w.key + 1
	}
	if key, _, ok := s.tree.NextTagged(from, tag); ok {
		s.t.Fatalf("NextTagged(%d, %d): got %d, want none", from, tag, key)
	}
}

// Chunks of random operations, each chunk followed by a comparison of the whole,
// and the invariants checked over the whole tree.
func TestModelThrash(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newShadow(t, k, k.testKeys(1500, 6))
		r := rand.New(rand.NewPCG(3, k.keyMax))
		for _, chunk := range []struct{ size, rounds int }{{1, 60}, {127, 40}, {16_129, 4}} {
			rounds := chunk.rounds
			if testing.Short() {
				rounds = max(1, rounds/10)
			}
			for range rounds {
				for range chunk.size {
					s.step(r.Uint32(), r.Uint32(), r.Uint32())
				}
				s.compare()
			}
		}
		for i, key := range s.keys {
			if got := s.tree.Delete(key); got != s.cells[i].value {
				t.Fatalf("Delete(%d): got %d, want %d", key, got, s.cells[i].value)
			}
			s.cells[i] = cell{}
		}
		s.compare()
	})
}

func FuzzKinds(f *testing.F) {
	f.Add([]byte{0, 0, 2, 3, 0, 0, 2, 0, 0})
	f.Add([]byte{1, 1, 2, 3, 1, 0, 1, 90, 1, 3, 90, 1, 1, 200, 2, 5, 1, 1, 2, 1, 0})
	f.Add([]byte{0, 255, 8, 4, 255, 3, 0, 254, 8, 4, 254, 3, 5, 255, 3, 2, 254, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		for _, k := range kinds() {
			if k.name == "Tree22" {
				continue // its memory is too large to make anew each time
			}
			s := newShadow(t, k, k.testKeys(64, 3))
			for i := 0; i+3 <= len(ops) && i < 3*256; i += 3 {
				s.step(uint32(ops[i]), uint32(ops[i+1]), uint32(ops[i+2]))
			}
			s.compare()
		}
	})
}
