package radix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTree128Model(t *testing.T) {
	tree := NewTree128[uint64]()
	model := map[Tree128Key]*uint64{}
	r := rand.New(rand.NewPCG(1, 128))
	steps := 60_000
	if testing.Short() {
		steps = 6_000
	}
	for i := range steps {
		key := Tree128Key{uint64(r.IntN(3)), uint64(r.IntN(700)) << 40}
		if i%3 > 0 {
			value := new(uint64)
			if old, err := tree.Insert(key, value); err != nil || old != model[key] {
				t.Fatalf("Insert(%v): got %v, %v, want %v", key, old, err, model[key])
			}
			model[key] = value
		} else {
			if old := tree.Delete(key); old != model[key] {
				t.Fatalf("Delete(%v): got %v, want %v", key, old, model[key])
			}
			delete(model, key)
		}
		if got := tree.Lookup(key); got != model[key] {
			t.Fatalf("Lookup(%v): got %v, want %v", key, got, model[key])
		}
	}
	for hi := range uint64(3) {
		for lo := range uint64(700) {
			key := Tree128Key{hi, lo << 40}
			if got := tree.Lookup(key); got != model[key] {
				t.Errorf("Lookup(%v): got %v, want %v", key, got, model[key])
			}
			if old := tree.Delete(key); old != model[key] {
				t.Errorf("Delete(%v): got %v, want %v", key, old, model[key])
			}
		}
	}
	if !tree.root.isEmpty() {
		t.Error("the last deletions left nodes behind")
	}
	if _, err := tree.Insert(Tree128Key{}, nil); !errors.Is(err, ErrTree128Value) {
		t.Errorf("Insert of nil: got %v, want %v", err, ErrTree128Value)
	}
}

// Keys of one hash are told apart and leave one by one.
func TestTree128OneHash(t *testing.T) {
	item := (*tree128Item[uint64])(nil)
	values := make([]uint64, 5)
	for i := range values {
		item = &tree128Item[uint64]{key: Tree128Key{0, uint64(i)}, value: &values[i], next: item}
	}
	tree := NewTree128[uint64]()
	for i := range values {
		key := Tree128Key{0, uint64(i)}
		tree.root.slot[tree.hash(key)%tree128Slots].Store(item)
		if got := tree.Lookup(key); got != &values[i] {
			t.Errorf("Lookup(%v) in a list of one hash: got %v, want %v", key, got, &values[i])
		}
	}
	for _, i := range []int{2, 0, 4, 3, 1} {
		rest, old := item.without(Tree128Key{0, uint64(i)})
		if old != &values[i] {
			t.Errorf("without key %d: got %v, want %v", i, old, &values[i])
		}
		item = rest
	}
	if item != nil {
		t.Errorf("got %+v, want nothing left", item)
	}
	if rest, old := item.without(Tree128Key{}); rest != nil || old != nil {
		t.Errorf("without of nothing: got %v, %v", rest, old)
	}
}

// Keys that stay are found while others beside them come and go, by two writers.
func TestStressTree128(t *testing.T) {
	tree := NewTree128[uint64]()
	kept := make([]uint64, 64)
	for i := range kept {
		kept[i] = uint64(i)
		if _, err := tree.Insert(Tree128Key{1, uint64(i)}, &kept[i]); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	end := time.Now().Add(stressLimit())
	for w := range uint64(2) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w, 1))
			for n := 0; !stop.Load(); n++ {
				key := Tree128Key{2 + w, r.Uint64N(400)}
				if tree.Lookup(key) != nil {
					tree.Delete(key)
				} else if _, err := tree.Insert(key, &key.Lo); err != nil {
					t.Error(err)
				}
				if n%64 == 0 {
					runtime.Gosched()
					if time.Now().After(end) {
						stop.Store(true)
					}
				}
			}
		})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w, 2))
			for !stop.Load() {
				i := r.IntN(len(kept))
				if got := tree.Lookup(Tree128Key{1, uint64(i)}); got != &kept[i] {
					t.Errorf("Lookup of key %d, which stays: got %v", i, got)
					stop.Store(true)
				}
				key := Tree128Key{2 + w, r.Uint64N(400)}
				if got := tree.Lookup(key); got != nil && *got != key.Lo {
					t.Errorf("Lookup(%v): got the value of %d", key, *got)
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzTree128(f *testing.F) {
	f.Add([]byte{1, 1, 2, 1, 3, 1, 1, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		tree := NewTree128[uint64]()
		model := map[Tree128Key]*uint64{}
		for i := 0; i+2 <= len(ops) && i < 1024; i += 2 {
			key := Tree128Key{Lo: uint64(ops[i])}
			var old, want *uint64
			want = model[key]
			if ops[i+1]%2 == 1 {
				model[key] = new(uint64)
				old, _ = tree.Insert(key, model[key])
			} else {
				delete(model, key)
				old = tree.Delete(key)
			}
			if old != want || tree.Lookup(key) != model[key] {
				t.Fatalf("key %v: got %v and %v, want %v and %v", key, old, tree.Lookup(key), want, model[key])
			}
		}
	})
}

func ExampleTree128() {
	files := NewTree128[string]()
	name := "libc.so.6"
	key := Tree128Key{Hi: 0xfd01 << 32, Lo: 131_074} // device, inode
	if _, err := files.Insert(key, &name); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*files.Lookup(key), files.Lookup(Tree128Key{}) == nil)
	// Output: libc.so.6 true
}
