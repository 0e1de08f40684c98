package arch

import "sync/atomic"

// An asymmetric fence makes one side of a store-to-load ordering cheap:
//
//	many, often:  StoreOwned(x, 1); load y
//	one, seldom:  store y; Membarrier(); load x
//
// On amd64 a store by assembly is light: a later load may run ahead of it, which
// nothing short of a fence forbids. membarrier(2) makes every running thread of
// the process pass such a fence, so at least one side sees the other's store, as
// if both had fences. Elsewhere StoreOwned and StoreRelease64 are ordered before
// later atomic loads (XCHG; STLR and LDAR of arm64), and there is nothing to add.
//
// Who relies on it calls HasMembarrier before the first StoreOwned. Where that is
// false, on amd64 too, StoreOwned is ordered before later atomic loads by itself,
// and the seldom side leaves out the Membarrier.
//
// Source: membarrier(2), command PRIVATE_EXPEDITED (Linux 4.14).

var membarrierDisabled atomic.Bool

// DisableMembarrier makes HasMembarrier false for the life of the process, which
// is for comparisons and for those who are going to forbid themselves the system
// call. It has an effect before the first HasMembarrier only.
func DisableMembarrier() { membarrierDisabled.Store(true) }
