package radix

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kpidd/kpidd/arch"
)

func TestMappedEndOfKeys(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		tr := s.new(t, s.memory(), nil)
		last := s.keys - 1
		if _, err := tr.Insert(last, 7); err != nil {
			t.Fatalf("Insert(%d): %v", last, err)
		}
		buf := make([]entry, 4)
		for _, beyond := range []uint32{s.keys, s.keys + 1, s.keys + s.pageKeys(), 1 << 31, math.MaxUint32} {
			if got := tr.Lookup(beyond); got != 0 {
				t.Errorf("Lookup(%d): got %d, want 0", beyond, got)
			}
			if got := tr.Delete(beyond); got != 0 {
				t.Errorf("Delete(%d): got %d, want 0", beyond, got)
			}
			if _, err := tr.Insert(beyond, 1); !errors.Is(err, s.errKey) {
				t.Errorf("Insert(%d): got %v, want %v", beyond, err, s.errKey)
			}
			if err := tr.InsertNew(beyond, 1); !errors.Is(err, s.errKey) {
				t.Errorf("InsertNew(%d): got %v, want %v", beyond, err, s.errKey)
			}
			if n, _, more := tr.GangAll(beyond, buf); n != 0 || more {
				t.Errorf("GangAll(%d): got %d entries, more %v, want none", beyond, n, more)
			}
		}
		if n, next, more := tr.GangAll(last, buf); n != 1 || next != s.keys || more {
			t.Errorf("GangAll(%d): got %d entries, next %d, more %v, want 1, %d, false", last, n, next, more, s.keys)
		}
		if s.tags == 0 {
			return
		}
		tr.SetTag(last, 0)
		if key, slot, ok := tr.NextTagged(last, 0); !ok || key != last || slot != 7 {
			t.Errorf("NextTagged(%d): got %d, %d, %v, want %d, 7, true", last, key, slot, ok, last)
		}
		for _, beyond := range []uint32{s.keys, s.keys + s.pageKeys(), math.MaxUint32} {
			if key, _, ok := tr.NextTagged(beyond, 0); ok {
				t.Errorf("NextTagged(%d): wrapped to %d", beyond, key)
			}
			if n, _, more := tr.Gang(beyond, 0, buf); n != 0 || more {
				t.Errorf("Gang(%d): got %d entries, more %v, want none", beyond, n, more)
			}
			if tr.Tagged(beyond, 0) {
				t.Errorf("Tagged(%d): got true, want false", beyond)
			}
			tr.ClearTag(beyond, 0)
		}
	})
}

func TestGangEmptyBuffer(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		tr := s.new(t, s.memory(), nil)
		key := s.pageKeys() + 1
		if n, _, more := tr.GangAll(0, nil); n != 0 || more {
			t.Errorf("GangAll of an empty tree: got %d entries, more %v, want none", n, more)
		}
		if err := tr.InsertNew(key, 5); err != nil {
			t.Fatal(err)
		}
		if n, next, more := tr.GangAll(0, nil); n != 0 || next != key || !more {
			t.Errorf("GangAll without room: got %d, %d, %v, want 0, %d, true", n, next, more, key)
		}
	})
}

func TestInsertRefusesSlot0(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		tr := s.new(t, s.memory(), func(int) error {
			t.Error("back was called for a refused insertion")
			return nil
		})
		if _, err := tr.Insert(1, 0); !errors.Is(err, s.errSlot) {
			t.Errorf("Insert of slot 0: got %v, want %v", err, s.errSlot)
		}
		if err := tr.InsertNew(1, 0); !errors.Is(err, s.errSlot) {
			t.Errorf("InsertNew of slot 0: got %v, want %v", err, s.errSlot)
		}
	})
}

func TestBackErrorChangesNothing(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		mem := s.memory()
		full := errors.New("no space")
		tr := s.new(t, mem, func(page int) error {
			if page == 1 {
				return full
			}
			return nil
		})
		key := s.pageKeys()
		if _, err := tr.Insert(key, 9); !errors.Is(err, full) || !strings.Contains(err.Error(), "page 1") {
			t.Errorf("Insert: got %v, want %v and the page", err, full)
		}
		if err := tr.InsertNew(key, 9); !errors.Is(err, full) {
			t.Errorf("InsertNew: got %v, want %v", err, full)
		}
		for name, region := range map[string][]byte{"directory": mem.Dir, "tag": mem.Tags, "slot": mem.Slots} {
			if len(bytes.Trim(region, "\x00")) > 0 {
				t.Errorf("the %s region was stored into", name)
			}
		}
		if err := tr.InsertNew(key-1, 9); err != nil {
			t.Errorf("InsertNew beside: %v", err)
		}
	})
}

func TestNewRefusesMemory(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		for name, change := range map[string]func(m *Tree22Memory){
			"directory region of":         func(m *Tree22Memory) { m.Dir = m.Dir[:s.dirBytes-1] },
			"slot region of":              func(m *Tree22Memory) { m.Slots = m.Slots[:s.slotBytes-1] },
			"directory region of 0 bytes": func(m *Tree22Memory) { m.Dir = nil },
			"directory region at":         func(m *Tree22Memory) { m.Dir = alignedBytes(s.dirBytes + 8)[4:] },
			"slot region at":              func(m *Tree22Memory) { m.Slots = alignedBytes(s.slotBytes + 8)[1:] },
		} {
			m := s.memory()
			change(&m)
			if _, err := s.make(m, nil); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want an error with %q", err, name)
			}
		}
		if s.tags == 0 {
			return
		}
		m := s.memory()
		m.Tags = m.Tags[:s.tagBytes-1]
		if _, err := s.make(m, nil); err == nil || !strings.Contains(err.Error(), "tag region") {
			t.Errorf("got %v, want an error about the tag region", err)
		}
	})
}

func TestSetTagOnEmptySlotPanics(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		if s.tags == 0 {
			return
		}
		tr := s.new(t, s.memory(), nil)
		for _, key := range []uint32{0, s.keys - 1, s.keys, math.MaxUint32} {
			wantPanic(t, "radix: I2: tag on empty slot", func() { tr.SetTag(key, 0) })
		}
	})
}

func TestInsertNewOfPresentKeyPanics(t *testing.T) {
	if !arch.Invariants {
		t.Skip("checked only under the race detector or the build tag invariants")
	}
	eachShape(t, func(t *testing.T, s shape) {
		tr := s.new(t, s.memory(), nil)
		if err := tr.InsertNew(3, 1); err != nil {
			t.Fatal(err)
		}
		wantPanic(t, "radix: I1: new key is present", func() { tr.InsertNew(3, 2) })
	})
}

func wantPanic(t *testing.T, want string, run func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("panic: got %q, want %q", got, want)
		}
	}()
	run()
}

// A tag bit over an empty slot is skipped and hides nothing behind it.
func TestStaleTagIsSkipped(t *testing.T) {
	eachShape(t, func(t *testing.T, s shape) {
		if s.tags == 0 {
			return
		}
		mem := s.memory()
		tr := s.new(t, mem, nil)
		for _, key := range []uint32{1, 2, s.pageKeys() + 1} {
			if err := tr.InsertNew(key, key); err != nil {
				t.Fatal(err)
			}
			tr.SetTag(key, 0)
		}
		clear(mem.Slots[4*1 : 4*2])
		want := uint32(2)
		for from := uint32(0); ; want = s.pageKeys() + 1 {
			key, _, ok := tr.NextTagged(from, 0)
			if !ok {
				break
			}
			if key != want {
				t.Errorf("NextTagged(%d): got %d, want %d", from, key, want)
			}
			from = key + 1
		}
		if n, _, _ := tr.Gang(0, 0, make([]entry, 8)); n != 2 {
			t.Errorf("Gang over a stale tag: got %d entries, want 2", n)
		}
	})
}

// Whatever the memory holds, readers end, stay inside it, and keep the order.
func TestHostileMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	fills := map[string]func() uint64{
		"ones":   func() uint64 { return ^uint64(0) },
		"random": r.Uint64,
		"sparse": func() uint64 { return r.Uint64() & r.Uint64() & r.Uint64() & r.Uint64() },
	}
	eachShape(t, func(t *testing.T, s shape) {
		if testing.Short() && s.keys > 1<<12 {
			t.Skip("a walk over all keys takes long")
		}
		for name, fill := range fills {
			mem := s.memory()
			for _, region := range [][]byte{mem.Dir, mem.Tags, mem.Slots} {
				words := wordsOf(region, len(region)/8)
				for i := range words {
					words[i] = fill()
				}
			}
			tr := s.new(t, mem, nil)
			walks := []func(uint32, []entry) (int, uint32, bool){tr.GangAll}
			for tag := range s.tags {
				walks = append(walks, func(from uint32, buf []entry) (int, uint32, bool) { return tr.Gang(from, tag, buf) })
				tr.NextTagged(s.keys/3, tag)
			}
			for i, walk := range walks {
				buf := make([]entry, 1000)
				low, total := uint32(0), uint32(0)
				for from, more := uint32(0), true; more; {
					var n int
					n, from, more = walk(from, buf)
					for _, e := range buf[:n] {
						if e.Key < low || e.Key >= s.keys || e.Slot == 0 {
							t.Fatalf("%s, walk %d: got %+v after key %d", name, i, e, low)
						}
						low = e.Key + 1
					}
					if total += uint32(n); total > s.keys {
						t.Fatalf("%s, walk %d does not end", name, i)
					}
				}
			}
			for key := uint32(0); key < s.keys+100; key += 1 + s.keys/500 {
				tr.Lookup(key)
			}
			tr.Pages()
		}
	})
}

func ExampleTree22() {
	mem := Tree22Memory{
		Dir:   make([]byte, Tree22DirBytes),
		Tags:  make([]byte, Tree22TagBytes),
		Slots: make([]byte, Tree22SlotBytes),
	}
	tree, err := NewTree22(mem, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for slot, pid := range []uint32{1, 4711, 4712} {
		if err := tree.InsertNew(pid, uint32(slot)+1); err != nil {
			fmt.Println(err)
		}
	}
	tree.SetTag(1, Tree22TGID)
	tree.SetTag(4711, Tree22TGID)

	var leaders [16]Tree22Entry
	n, _, _ := tree.Gang(0, Tree22TGID, leaders[:])
	fmt.Println(tree.Lookup(4712), leaders[:n])
	// Output: 3 [{1 1} {4711 2}]
}
