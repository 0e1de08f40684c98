package radix

import (
	"iter"
	"testing"
	"unsafe"
)

// entry is an entry of any tree.
type entry = Tree22Entry

// tree is a generated type with tags as plain numbers, so that one suite runs
// over all.
type tree interface {
	Lookup(key uint32) uint32
	Insert(key, slot uint32) (old uint32, err error)
	InsertNew(key, slot uint32) error
	Delete(key uint32) (old uint32)
	Pages() int
	SetTag(key uint32, tag int)
	ClearTag(key uint32, tag int)
	Tagged(key uint32, tag int) bool
	NextTagged(from uint32, tag int) (key, slot uint32, ok bool)
	Gang(from uint32, tag int, buf []entry) (n int, next uint32, more bool)
	GangAll(from uint32, buf []entry) (n int, next uint32, more bool)
	All(tag int) iter.Seq2[uint32, uint32]
}

// plain is what every generated tree has, tagged what those with tags have.
type plain[E ~struct{ Key, Slot uint32 }] interface {
	Lookup(key uint32) uint32
	Insert(key, slot uint32) (old uint32, err error)
	InsertNew(key, slot uint32) error
	Delete(key uint32) (old uint32)
	Pages() int
	GangAll(from uint32, buf []E) (n int, next uint32, more bool)
}

type tagged[T ~int, E ~struct{ Key, Slot uint32 }] interface {
	plain[E]
	SetTag(key uint32, tag T)
	ClearTag(key uint32, tag T)
	Tagged(key uint32, tag T) bool
	NextTagged(from uint32, tag T) (key, slot uint32, ok bool)
	Gang(from uint32, tag T, buf []E) (n int, next uint32, more bool)
	All(tag T) iter.Seq2[uint32, uint32]
}

type withTags[T ~int, E ~struct{ Key, Slot uint32 }] struct{ tagged[T, E] }

func (a withTags[T, E]) SetTag(key uint32, tag int)      { a.tagged.SetTag(key, T(tag)) }
func (a withTags[T, E]) ClearTag(key uint32, tag int)    { a.tagged.ClearTag(key, T(tag)) }
func (a withTags[T, E]) Tagged(key uint32, tag int) bool { return a.tagged.Tagged(key, T(tag)) }
func (a withTags[T, E]) NextTagged(from uint32, tag int) (key, slot uint32, ok bool) {
	return a.tagged.NextTagged(from, T(tag))
}
func (a withTags[T, E]) Gang(from uint32, tag int, buf []entry) (n int, next uint32, more bool) {
	own := make([]E, len(buf))
	n, next, more = a.tagged.Gang(from, T(tag), own)
	return copyEntries(buf, own[:n]), next, more
}
func (a withTags[T, E]) All(tag int) iter.Seq2[uint32, uint32] { return a.tagged.All(T(tag)) }
func (a withTags[T, E]) GangAll(from uint32, buf []entry) (n int, next uint32, more bool) {
	own := make([]E, len(buf))
	n, next, more = a.tagged.GangAll(from, own)
	return copyEntries(buf, own[:n]), next, more
}

// withoutTags is a tree of no tags; only the methods of plain may be called.
type withoutTags[E ~struct{ Key, Slot uint32 }] struct {
	tree
	plain[E]
	all func() iter.Seq2[uint32, uint32]
}

func (a withoutTags[E]) All(int) iter.Seq2[uint32, uint32] { return a.all() }

func (a withoutTags[E]) Lookup(key uint32) uint32 { return a.plain.Lookup(key) }
func (a withoutTags[E]) Insert(key, slot uint32) (old uint32, err error) {
	return a.plain.Insert(key, slot)
}
func (a withoutTags[E]) InsertNew(key, slot uint32) error { return a.plain.InsertNew(key, slot) }
func (a withoutTags[E]) Delete(key uint32) (old uint32)   { return a.plain.Delete(key) }
func (a withoutTags[E]) Pages() int                       { return a.plain.Pages() }
func (a withoutTags[E]) GangAll(from uint32, buf []entry) (n int, next uint32, more bool) {
	own := make([]E, len(buf))
	n, next, more = a.plain.GangAll(from, own)
	return copyEntries(buf, own[:n]), next, more
}

func copyEntries[E ~struct{ Key, Slot uint32 }](dst []entry, src []E) int {
	for i, e := range src {
		dst[i] = entry(e)
	}
	return len(src)
}

// shape is a generated type and its figures.
type shape struct {
	name                          string
	keys, pages                   uint32
	tags                          int
	dirBytes, tagBytes, slotBytes int
	errKey, errSlot               error
	make                          func(m Tree22Memory, back func(page int) error) (tree, error)
}

var shapes = []shape{
	{
		"Tree22", Tree22Keys, Tree22Pages, Tree22Tags, Tree22DirBytes, Tree22TagBytes, Tree22SlotBytes, ErrTree22Key, ErrTree22Slot,
		func(m Tree22Memory, back func(page int) error) (tree, error) {
			t, err := NewTree22(m, back)
			return withTags[Tree22Tag, Tree22Entry]{t}, err
		},
	}, {
		"Mapped9", Mapped9Keys, Mapped9Pages, Mapped9Tags, Mapped9DirBytes, Mapped9TagBytes, Mapped9SlotBytes, ErrMapped9Key, ErrMapped9Slot,
		func(m Tree22Memory, back func(page int) error) (tree, error) {
			t, err := NewMapped9(Mapped9Memory(m), back)
			return withTags[Mapped9Tag, Mapped9Entry]{t}, err
		},
	}, {
		"Mapped8", Mapped8Keys, Mapped8Pages, Mapped8Tags, Mapped8DirBytes, Mapped8TagBytes, Mapped8SlotBytes, ErrMapped8Key, ErrMapped8Slot,
		func(m Tree22Memory, back func(page int) error) (tree, error) {
			t, err := NewMapped8(Mapped8Memory{Dir: m.Dir, Slots: m.Slots}, back)
			return withoutTags[Mapped8Entry]{plain: t, all: t.All}, err
		},
	}, {
		"Mapped4", Mapped4Keys, Mapped4Pages, Mapped4Tags, Mapped4DirBytes, Mapped4TagBytes, Mapped4SlotBytes, ErrMapped4Key, ErrMapped4Slot,
		func(m Tree22Memory, back func(page int) error) (tree, error) {
			t, err := NewMapped4(Mapped4Memory(m), back)
			return withTags[Mapped4Tag, Mapped4Entry]{t}, err
		},
	},
}

func eachShape(t *testing.T, run func(t *testing.T, s shape)) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) { run(t, s) })
	}
}

func (s shape) pageKeys() uint32 { return s.keys / s.pages }

// memory returns zeroed memory for the shape, exactly as long as it asks for.
func (s shape) memory() Tree22Memory {
	return Tree22Memory{Dir: alignedBytes(s.dirBytes), Tags: alignedBytes(s.tagBytes), Slots: alignedBytes(s.slotBytes)}
}

func alignedBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

func (s shape) new(t testing.TB, m Tree22Memory, back func(page int) error) tree {
	t.Helper()
	tr, err := s.make(m, back)
	if err != nil {
		t.Fatalf("make %s: %v", s.name, err)
	}
	return tr
}

// summary returns the summary words of a tag, leaf the words of a tag and page.
func (s shape) summary(m Tree22Memory, tag int) []uint64 {
	return wordsOf(m.Dir[(1+tag)*s.dirBytes/(1+s.tags):], max(1, int(s.pages)/64))
}

func (s shape) leaf(m Tree22Memory, tag int, page uint32) []uint64 {
	n := max(1, int(s.pageKeys())/64)
	return wordsOf(m.Tags[(tag*int(s.pages)+int(page))*n*8:], n)
}

func wordsOf(b []byte, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// borderKeys are the keys at which a walk or an index can go wrong: around word,
// page and directory borders, and both ends.
func (s shape) borderKeys() []uint32 {
	seen := map[uint32]bool{}
	var keys []uint32
	for _, at := range []uint32{0, 8, 64, 128, s.pageKeys(), 2 * s.pageKeys(), 64 * s.pageKeys(), s.keys / 2, s.keys - s.pageKeys(), s.keys} {
		for d := range uint32(5) {
			if key := at + d - 2; key < s.keys && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}
