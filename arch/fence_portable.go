package arch

import (
	"sync/atomic"
	"time"
)

// The portable halves of fence_generic.go. They are always built, so that one
// test compares them with the assembly.

var origin = time.Now()

func storeRelease64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// cycles never returns 0, as a counter that runs since boot does not.
func cycles() uint64 { return uint64(time.Since(origin)) + 1 }
