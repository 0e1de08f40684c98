package radix

import (
	"errors"
	"slices"
	"testing"

	"github.com/kpidd/kpidd/arch"
)

// Entries and tags stay through each step of growth, from the lowest key on and
// from a high one on; ordinary tags are propagated to the new root (M1.3).
func TestGrowth(t *testing.T) {
	for _, k := range heapKinds {
		t.Run(k.name, func(t *testing.T) {
			tree := k.make()
			var want []item
			for _, key := range k.ones() {
				if err := tree.InsertNew(key, key/2+1); err != nil {
					t.Fatal(err)
				}
				want = append(want, item{key, key/2 + 1})
				for tag := range k.tags {
					if len(want)%2 == 1 {
						tree.SetTag(key, tag)
					}
				}
				for tag := -1; tag < k.tags; tag++ {
					step := 1
					if tag >= 0 {
						step = 2
					}
					var some []item
					for i := 0; i < len(want); i += step {
						some = append(some, want[i])
					}
					if got := walkAll(tree, tag, 5); !slices.Equal(got, some) {
						t.Fatalf("tag %d after key %d: got %v, want %v", tag, key, got, some)
					}
				}
				if err := tree.Check(); err != nil {
					t.Fatal(err)
				}
			}
			for _, w := range slices.Backward(want) {
				if got := tree.Delete(w.key); got != w.value {
					t.Errorf("Delete(%d): got %d, want %d", w.key, got, w.value)
				}
				if err := tree.Check(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A root that is replaced by a higher one before it was ever used leaves nothing.
func TestGrowthOfEmptyTree(t *testing.T) {
	for _, k := range heapKinds {
		t.Run(k.name, func(t *testing.T) {
			tree := k.make()
			for _, key := range []uint64{k.keyMax, 0, k.keyMax / 2} {
				if _, err := tree.Insert(key, 1); err != nil {
					t.Fatal(err)
				}
				tree.Delete(key)
			}
			if got := walkAll(tree, -1, 3); len(got) > 0 {
				t.Errorf("got %v, want nothing", got)
			}
			if err := tree.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEndOfAnyKeys(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		tree := k.make()
		last := k.keyMax
		if _, err := tree.Insert(last, 7); err != nil {
			t.Fatal(err)
		}
		if got := walkAll(tree, -1, 1); !slices.Equal(got, []item{{last, 7}}) {
			t.Errorf("walk: got %v, want the last key", got)
		}
		if n, _, more := tree.GangAll(last, make([]item, 2)); n != 1 || more {
			t.Errorf("GangAll(%d): got %d, more %v, want 1, false", last, n, more)
		}
		if _, err := tree.Insert(0, 0); !errors.Is(err, k.errValue) {
			t.Errorf("Insert of no value: got %v, want %v", err, k.errValue)
		}
		if err := tree.InsertNew(0, 0); !errors.Is(err, k.errValue) {
			t.Errorf("InsertNew of no value: got %v, want %v", err, k.errValue)
		}
		if k.tags > 0 {
			tree.SetTag(last, 0)
			if key, _, ok := tree.NextTagged(0, 0); !ok || key != last {
				t.Errorf("NextTagged(0): got %d, %v, want %d", key, ok, last)
			}
		}
		for _, beyond := range []uint64{last + 1, last + 2, k.typeMax} {
			if beyond <= last || beyond > k.typeMax {
				continue // every number of the type is a key
			}
			if got := tree.Lookup(beyond); got != 0 {
				t.Errorf("Lookup(%d): got %d, want 0", beyond, got)
			}
			if got := tree.Delete(beyond); got != 0 {
				t.Errorf("Delete(%d): got %d, want 0", beyond, got)
			}
			if _, err := tree.Insert(beyond, 1); !errors.Is(err, k.errKey) {
				t.Errorf("Insert(%d): got %v, want %v", beyond, err, k.errKey)
			}
			if err := tree.InsertNew(beyond, 1); !errors.Is(err, k.errKey) {
				t.Errorf("InsertNew(%d): got %v, want %v", beyond, err, k.errKey)
			}
			if n, _, more := tree.GangAll(beyond, make([]item, 1)); n != 0 || more {
				t.Errorf("GangAll(%d): got %d, more %v, want none", beyond, n, more)
			}
			if k.tags == 0 {
				continue
			}
			if _, _, ok := tree.NextTagged(beyond, 0); ok {
				t.Errorf("NextTagged(%d) wraps", beyond)
			}
			if n, _, more := tree.Gang(beyond, 0, make([]item, 1)); n != 0 || more {
				t.Errorf("Gang(%d): got %d, more %v, want none", beyond, n, more)
			}
			if tree.Tagged(beyond, 0) {
				t.Errorf("Tagged(%d): got true, want false", beyond)
			}
			tree.ClearTag(beyond, 0)
		}
	})
}

func TestHeapPanics(t *testing.T) {
	for _, k := range heapKinds {
		t.Run(k.name, func(t *testing.T) {
			tree := k.make()
			if arch.Invariants {
				if err := tree.InsertNew(9, 1); err != nil {
					t.Fatal(err)
				}
				wantPanic(t, "radix: I1: new key is present", func() { tree.InsertNew(9, 2) })
			}
			if k.tags > 0 {
				wantPanic(t, "radix: I2: tag on absent key", func() { tree.SetTag(5, 0) })
			}
			if !k.ids {
				return
			}
			publish := "radix: I5: publish without a value or at an id that is not reserved"
			wantPanic(t, publish, func() { tree.Publish(5, 1) })
			wantPanic(t, "radix: I5: cancel at an id that is not reserved", func() { tree.Cancel(5) })
			if err := tree.AllocAt(5, 1); err != nil {
				t.Fatal(err)
			}
			wantPanic(t, publish, func() { tree.Publish(5, 1) })
			wantPanic(t, "radix: I5: cancel at an id that is not reserved", func() { tree.Cancel(5) })
		})
	}
}
