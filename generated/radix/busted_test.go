package radix

import (
	"math"
	"testing"
	"time"
)

// Trees that differ from the real ones by one line that is left out or moved;
// RootFirst and SlotFirst also stop their writer there, for amd64 shows no such
// window by itself. What a stress test is worth shows in that it catches them.
var bustedKinds = []struct {
	kind
	catch func(t *testing.T, k kind, limit time.Duration) error
}{
	{
		// ClearTag leaves out:
		//
		//	if !n.child[i].Load().clearTag(key, tag) {
		//	-	return false
		//	}
		kind: kind{
			name: "Recheck", keyMax: RecheckKeyMax, typeMax: math.MaxUint16, tags: RecheckTags, errKey: ErrRecheckKey, errValue: ErrRecheckValue,
			make: func() anyTree {
				t := NewRecheck[uint64]()
				return gc(adapter[uint16, *uint64, RecheckTag, RecheckEntry[uint64]]{point: t, walk: t, tags: t, check: t.Check})
			},
		},
		catch: func(t *testing.T, k kind, limit time.Duration) error { return newChurn(t, k).run(limit) },
	}, {
		// ClearTag leaves out:
		//
		//	if atomic.LoadUint64(&leaf[i]) != 0 {
		//	-	return
		//	}
		kind: kind{
			name: "MappedRecheck", keyMax: MappedRecheckKeys - 1, typeMax: math.MaxUint32, tags: MappedRecheckTags,
			errKey: ErrMappedRecheckKey, errValue: ErrMappedRecheckSlot,
			make: func() anyTree {
				t, err := NewMappedRecheck(MappedRecheckMemory{
					Dir:   alignedBytes(MappedRecheckDirBytes),
					Tags:  alignedBytes(MappedRecheckTagBytes),
					Slots: alignedBytes(MappedRecheckSlotBytes),
				}, nil)
				if err != nil {
					panic(err)
				}
				return mappedTree{tree: withTags[MappedRecheckTag, MappedRecheckEntry]{t}}
			},
		},
		catch: func(t *testing.T, k kind, limit time.Duration) error { return newChurn(t, k).run(limit) },
	}, {
		// Growth moves up:
		//
		//	root.used = 1
		//	+ t.root.Store(root) // A
		//	... tags are copied to root ...
		//	- t.root.Store(root) // A
		kind: kind{
			name: "RootFirst", keyMax: RootFirstKeyMax, typeMax: math.MaxUint64, tags: RootFirstTags, grows: true, errValue: ErrRootFirstValue,
			make: func() anyTree {
				t := NewRootFirst[uint64]()
				return gc(adapter[uint64, *uint64, RootFirstTag, RootFirstEntry[uint64]]{point: t, walk: t, tags: t, check: t.Check})
			},
		},
		catch: func(_ *testing.T, k kind, limit time.Duration) error { return growth(k, limit) },
	}, {
		// Delete moves up:
		//
		//	+ leaf.slot[key&31].Store(nil)
		//	... tags are cleared ...
		//	- leaf.slot[key&31].Store(nil)
		kind: kind{
			name: "SlotFirst", keyMax: SlotFirstKeyMax, typeMax: math.MaxUint16, tags: SlotFirstTags, errKey: ErrSlotFirstKey, errValue: ErrSlotFirstValue,
			make: func() anyTree {
				t := NewSlotFirst[uint64]()
				return gc(adapter[uint16, *uint64, SlotFirstTag, SlotFirstEntry[uint64]]{point: t, walk: t, tags: t, check: t.Check})
			},
		},
		catch: func(_ *testing.T, k kind, limit time.Duration) error { return tagOrder(k, limit) },
	},
}

// Each broken tree is caught within 30 s, in three tries at most.
func TestStressCatchesBusted(t *testing.T) {
	for _, b := range bustedKinds {
		t.Run(b.name, func(t *testing.T) {
			for range 3 {
				start := time.Now()
				if err := b.catch(t, b.kind, 10*time.Second); err != nil {
					t.Logf("caught after %v: %v", time.Since(start).Round(time.Millisecond), err)
					return
				}
			}
			t.Error("not caught in three tries of 10 s")
		})
	}
}
