package pid

import "sync/atomic"

const slabChunk = 1024 // values that are allocated together

// Slab is a growing array that is indexed by the table's slots.
//
//  1. Made by NewSlab; not to be copied. A new value is zero.
//  2. I1: chunks are made in order and never moved or given back.
//  3. Reserve and End belong to the holder of the lock that guards the slab; At may
//     be called by anybody for a slot that was reserved. What guards the values,
//     their type says.
//  4. A: a chunk is stored (release) before anything that names a slot in it; At
//     loads it (acquire).
//  5. A reader never sees half a chunk.
//  6. Values stay where they are for the life of the slab.
//  7. At is wait-free; Reserve allocates once in 1024 slots.
//  8. Source: DESIGN.md decision 4.
type Slab[T any] struct {
	chunks [Max/slabChunk + 1]atomic.Pointer[[slabChunk]T] // atomic
	made   uint32                                          // chunks; guarded as Reserve
}

// NewSlab makes a slab without room.
func NewSlab[T any]() *Slab[T] { return new(Slab[T]) }

// At is the value of a slot that was reserved.
func (s *Slab[T]) At(slot uint32) *T {
	return &s.chunks[slot/slabChunk].Load()[slot%slabChunk] // A
}

// Reserve makes room for slot, and for all before it.
func (s *Slab[T]) Reserve(slot uint32) *T {
	for ; s.made <= slot/slabChunk; s.made++ {
		s.chunks[s.made].Store(new([slabChunk]T)) // A
	}
	return s.At(slot)
}

// End is one more than the highest slot that there is room for.
func (s *Slab[T]) End() uint32 { return s.made * slabChunk }

// Peek is At for a slot of which nobody knows whether it was reserved: nil if not.
func (s *Slab[T]) Peek(slot uint32) *T {
	chunk := s.chunks[slot/slabChunk].Load() // A
	if chunk == nil {
		return nil
	}
	return &chunk[slot%slabChunk]
}
