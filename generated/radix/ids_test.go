package radix

import (
	"errors"
	"math/rand/v2"
	"testing"
)

func eachIDKind(t *testing.T, run func(t *testing.T, k kind)) {
	for _, k := range heapKinds {
		if k.ids {
			t.Run(k.name, func(t *testing.T) { run(t, k) })
		}
	}
}

func TestAllocLowest(t *testing.T) {
	eachIDKind(t, func(t *testing.T, k kind) {
		tree := k.make()
		n := min(k.keyMax, 4999) + 1
		for want := range n {
			if id, err := tree.Alloc(want + 1); err != nil || id != want {
				t.Fatalf("Alloc: got %d, %v, want %d", id, err, want)
			}
		}
		for _, id := range []uint64{n - 1, n / 2, 3, n / 3} {
			if old := tree.Delete(id); old != id+1 {
				t.Fatalf("Delete(%d): got %d, want %d", id, old, id+1)
			}
		}
		for _, want := range []uint64{3, n / 3, n / 2, n - 1} {
			if id, err := tree.Alloc(1); err != nil || id != want {
				t.Fatalf("Alloc of a freed id: got %d, %v, want %d", id, err, want)
			}
		}
		if err := tree.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// The end of the id space: full is told, not wrapped, and one freed id is found.
func TestAllocExhausted(t *testing.T) {
	eachIDKind(t, func(t *testing.T, k kind) {
		tree := k.make()
		low := k.keyMax - min(k.keyMax, 300)
		for want := low; ; want++ {
			if id, err := tree.AllocRange(low, k.keyMax, 1); err != nil || id != want {
				t.Fatalf("AllocRange: got %d, %v, want %d", id, err, want)
			}
			if want == k.keyMax {
				break
			}
		}
		for name, alloc := range map[string]func() (uint64, error){
			"AllocRange":    func() (uint64, error) { return tree.AllocRange(low, k.keyMax, 1) },
			"AllocCyclic":   func() (uint64, error) { return tree.AllocCyclic(low, k.keyMax, 1) },
			"Reserve":       func() (uint64, error) { return tree.Reserve(low, k.keyMax) },
			"ReserveCyclic": func() (uint64, error) { return tree.ReserveCyclic(low+1, k.keyMax-1) },
		} {
			if id, err := alloc(); !errors.Is(err, k.errFull) {
				t.Errorf("%s of a full range: got %d, %v, want %v", name, id, err, k.errFull)
			}
		}
		if err := tree.Check(); err != nil {
			t.Fatal(err)
		}
		for _, id := range []uint64{k.keyMax, low, low + 7} {
			if !tree.Free(id) {
				t.Errorf("Free(%d): got false, want true", id)
			}
			if got, err := tree.AllocCyclic(low, k.keyMax, 1); err != nil || got != id {
				t.Errorf("AllocCyclic: got %d, %v, want the only free id %d", got, err, id)
			}
		}
		for id := low; id <= k.keyMax && id >= low; id++ {
			tree.Delete(id)
		}
		if err := tree.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAllocCyclic(t *testing.T) {
	eachIDKind(t, func(t *testing.T, k kind) {
		tree := k.make()
		const low, high = 10, 40
		want := uint64(low)
		for i := range 200 {
			id, err := tree.AllocCyclic(low, high, 1)
			if err != nil || id != want {
				t.Fatalf("AllocCyclic %d: got %d, %v, want %d", i, id, err, want)
			}
			if got := tree.Cursor(); got != id+1 {
				t.Fatalf("Cursor: got %d, want %d", got, id+1)
			}
			tree.Delete(id)
			if want++; want > high {
				want = low
			}
		}
		// The cursor lies outside of another range: that begins at its low end.
		if id, err := tree.AllocCyclic(45, 50, 1); err != nil || id != 45 {
			t.Errorf("AllocCyclic of another range: got %d, %v, want 45", id, err)
		}
		if id, err := tree.AllocCyclic(k.keyMax, k.keyMax, 1); err != nil || id != k.keyMax {
			t.Errorf("AllocCyclic at the end: got %d, %v, want %d", id, err, k.keyMax)
		}
		if id, err := tree.AllocCyclic(0, k.keyMax, 1); err != nil || id != 0 {
			t.Errorf("AllocCyclic behind the end: got %d, %v, want 0", id, err)
		}
	})
}

func TestAllocErrors(t *testing.T) {
	eachIDKind(t, func(t *testing.T, k kind) {
		tree := k.make()
		if _, err := tree.Alloc(0); !errors.Is(err, k.errValue) {
			t.Errorf("Alloc of no value: got %v, want %v", err, k.errValue)
		}
		if _, err := tree.AllocCyclic(0, 9, 0); !errors.Is(err, k.errValue) {
			t.Errorf("AllocCyclic of no value: got %v, want %v", err, k.errValue)
		}
		if err := tree.AllocAt(3, 0); !errors.Is(err, k.errValue) {
			t.Errorf("AllocAt of no value: got %v, want %v", err, k.errValue)
		}
		if !tree.IsFree(3) {
			t.Error("a refused allocation took its id")
		}
		if err := tree.AllocAt(3, 1); err != nil {
			t.Fatal(err)
		}
		for _, again := range []error{tree.AllocAt(3, 1), tree.ReserveAt(3)} {
			if !errors.Is(again, k.errTaken) {
				t.Errorf("a taken id: got %v, want %v", again, k.errTaken)
			}
		}
		if k.errKey == nil {
			return
		}
		if _, err := tree.AllocRange(5, 4, 1); !errors.Is(err, k.errKey) {
			t.Errorf("a range from 5 to 4: got %v, want %v", err, k.errKey)
		}
		if k.keyMax == k.typeMax {
			return
		}
		beyond := k.keyMax + 1
		for _, err := range []error{tree.AllocAt(beyond, 1), tree.ReserveAt(beyond)} {
			if !errors.Is(err, k.errKey) {
				t.Errorf("id %d: got %v, want %v", beyond, err, k.errKey)
			}
		}
		if _, err := tree.AllocRange(0, beyond, 1); !errors.Is(err, k.errKey) {
			t.Errorf("a range to %d: got %v, want %v", beyond, err, k.errKey)
		}
		if tree.IsFree(beyond) || tree.Free(beyond) {
			t.Errorf("id %d: got free, want neither free nor taken", beyond)
		}
	})
}

// A reserved id is seen by no reader until it is published, and is nobody else's.
func TestReserve(t *testing.T) {
	eachIDKind(t, func(t *testing.T, k kind) {
		tree := k.make()
		id, err := tree.Reserve(20, 30)
		if err != nil || id != 20 {
			t.Fatalf("Reserve: got %d, %v, want 20", id, err)
		}
		if tree.Lookup(id) != 0 || len(walkAll(tree, -1, 4)) != 0 || tree.IsFree(id) {
			t.Error("a reserved id is visible or free")
		}
		if next, err := tree.AllocRange(20, 30, 5); err != nil || next != 21 {
			t.Errorf("AllocRange beside: got %d, %v, want 21", next, err)
		}
		if old := tree.Delete(id); old != 0 || tree.IsFree(id) {
			t.Errorf("Delete of a reserved id: got %d, want 0 and still reserved", old)
		}
		tree.Publish(id, 9)
		if got := tree.Lookup(id); got != 9 {
			t.Errorf("Lookup: got %d, want 9", got)
		}
		tree.SetTag(id, 0)
		if old := tree.Withdraw(id); old != 9 || tree.Tagged(id, 0) || tree.Lookup(id) != 0 || tree.IsFree(id) {
			t.Errorf("Withdraw: got %d, want 9, no tag, no entry, and not free", old)
		}
		tree.Cancel(id)
		if !tree.IsFree(id) || tree.Free(id) {
			t.Error("a cancelled id is not free")
		}
		if err := tree.ReserveAt(k.keyMax); err != nil {
			t.Fatal(err)
		}
		if old, err := tree.Insert(k.keyMax, 3); err != nil || old != 0 {
			t.Errorf("Insert at a reserved id: got %d, %v, want 0", old, err)
		}
		if !tree.Free(k.keyMax) || tree.Lookup(k.keyMax) != 0 {
			t.Error("Free of an id with an entry: it is still there")
		}
		tree.Delete(21)
		if err := tree.Check(); err != nil {
			t.Error(err)
		}
	})
}

// idModel is the set of ids in use beside the tree.
type idModel struct {
	t     testing.TB
	k     kind
	tree  anyTree
	state map[uint64]int
}

const (
	idFree = iota
	idReserved
	idPublished
)

// lowest returns the lowest free id from min to max.
func (m *idModel) lowest(min, max uint64) (uint64, bool) {
	for id := min; ; id++ {
		if m.state[id] == idFree {
			return id, true
		}
		if id == max {
			return 0, false
		}
	}
}

func (m *idModel) step(what, a, b uint32) {
	m.t.Helper()
	span := min(m.k.keyMax, 200)
	id := uint64(a) % (span + 1)
	low, high := id, min(span, id+uint64(b)%64)
	if b%8 == 0 {
		low, high = m.k.keyMax-span, m.k.keyMax
		id = m.k.keyMax - id
	}
	switch what % 8 {
	case 0, 1:
		want, ok := m.lowest(low, high)
		got, err := m.tree.AllocRange(low, high, 1)
		m.took("AllocRange", got, err, want, ok, idPublished)
	case 2, 3:
		from := low
		if c := m.tree.Cursor(); low < c && c <= high {
			from = c
		}
		want, ok := m.lowest(from, high)
		if !ok {
			want, ok = m.lowest(low, high)
		}
		got, err := m.tree.ReserveCyclic(low, high)
		m.took("ReserveCyclic", got, err, want, ok, idReserved)
	case 4:
		err := m.tree.AllocAt(id, 1)
		if taken := m.state[id] != idFree; taken != errors.Is(err, m.k.errTaken) {
			m.t.Fatalf("AllocAt(%d): got %v, taken %v", id, err, taken)
		} else if !taken {
			m.state[id] = idPublished
		}
	case 5:
		if got, want := m.tree.Free(id), m.state[id] != idFree; got != want {
			m.t.Fatalf("Free(%d): got %v, want %v", id, got, want)
		}
		delete(m.state, id)
	case 6:
		switch m.state[id] {
		case idReserved:
			m.tree.Publish(id, 1)
			m.state[id] = idPublished
		case idPublished:
			m.tree.Withdraw(id)
			m.state[id] = idReserved
		}
	case 7:
		switch m.state[id] {
		case idReserved:
			m.tree.Cancel(id)
			delete(m.state, id)
		case idPublished:
			m.tree.Delete(id)
			delete(m.state, id)
		}
	}
	if got, want := m.tree.IsFree(id), m.state[id] == idFree; got != want {
		m.t.Fatalf("IsFree(%d): got %v, want %v", id, got, want)
	}
	if got, want := m.tree.Lookup(id) != 0, m.state[id] == idPublished; got != want {
		m.t.Fatalf("id %d is visible: %v, want %v", id, got, want)
	}
}

func (m *idModel) took(name string, got uint64, err error, want uint64, ok bool, state int) {
	m.t.Helper()
	if ok != (err == nil) || ok && got != want || !ok && !errors.Is(err, m.k.errFull) {
		m.t.Fatalf("%s: got %d, %v, want %d, %v", name, got, err, want, ok)
	}
	if ok {
		m.state[want] = state
	}
}

func TestModelIDs(t *testing.T) {
	eachIDKind(t, func(t *testing.T, k kind) {
		steps := 20_000
		if testing.Short() {
			steps = 2_000
		}
		m := &idModel{t, k, k.make(), map[uint64]int{}}
		r := rand.New(rand.NewPCG(5, k.keyMax))
		for i := range steps {
			m.step(r.Uint32(), r.Uint32(), r.Uint32())
			if i%500 == 0 {
				if err := m.tree.Check(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzIDs(f *testing.F) {
	f.Add([]byte{0, 0, 9, 2, 0, 9, 6, 0, 9, 5, 0, 1, 7, 0, 1})
	f.Add([]byte{4, 40, 8, 4, 41, 8, 0, 40, 8, 5, 40, 8, 0, 40, 8})
	f.Fuzz(func(t *testing.T, ops []byte) {
		for _, k := range heapKinds {
			if !k.ids {
				continue
			}
			m := &idModel{t, k, k.make(), map[uint64]int{}}
			for i := 0; i+3 <= len(ops) && i < 3*256; i += 3 {
				m.step(uint32(ops[i]), uint32(ops[i+1]), uint32(ops[i+2]))
			}
			if err := m.tree.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A new root has Free on every slot but the first, and on the first only when the
// old root still had room (M1.2): the next id is found without a search.
func TestFreeOnGrowth(t *testing.T) {
	for name, full := range map[string]bool{"old root full": true, "old root with room": false} {
		t.Run(name, func(t *testing.T) {
			tree := NewDeep7[uint64]()
			for id := range uint8(4) {
				if full || id != 2 {
					if err := tree.AllocAt(id, new(uint64)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := tree.AllocAt(9, new(uint64)); err != nil {
				t.Fatal(err)
			}
			want := uint64(0b1111)
			if full {
				want = 0b1110
			}
			if got := tree.root.Load().free[0]; got != want {
				t.Errorf("Free of the new root: got %#b, want %#b", got, want)
			}
			tree.Delete(1)
			if got := tree.root.Load().free[0]; got != 0b1111 {
				t.Errorf("Free of the root after a deletion: got %#b, want all", got)
			}
		})
	}
}
