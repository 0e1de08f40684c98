package task

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/radix"
)

const (
	stressKept    = 40  // processes that live throughout, two numbers apart
	stressChurn   = 200 // numbers that come and go between and after them
	stressWriters = 3
)

// sealed is a comm that tells which number it was given to, and by which writer's
// count, and that shows by its last bytes if it is whole.
func sealed(tid, count uint32) (c [16]byte) {
	binary.LittleEndian.PutUint32(c[0:], tid)
	binary.LittleEndian.PutUint32(c[4:], count)
	binary.LittleEndian.PutUint32(c[8:], ^tid)
	binary.LittleEndian.PutUint32(c[12:], ^count)
	return c
}

func checkSeal(h *table.Hot) error {
	c := &h.Comm
	tid, count := binary.LittleEndian.Uint32(c[0:]), binary.LittleEndian.Uint32(c[4:])
	if tid != h.TID || ^tid != binary.LittleEndian.Uint32(c[8:]) || ^count != binary.LittleEndian.Uint32(c[12:]) {
		return fmt.Errorf("task %d: comm %x is torn or another's", h.TID, c[:])
	}
	return nil
}

// stress is a table under readers. The kept processes have the numbers 2, 4, 6 …
type stress struct {
	stop   atomic.Bool
	failed atomic.Pointer[error]
	lists  atomic.Uint64
}

func (s *stress) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.stop.Store(true)
}

// list reads all leaders by next until the stress stops, and checks each listing:
// sealed records, in order, each kept process once.
func (s *stress) list(next func(nr uint32, h *table.Hot) bool) {
	var h table.Hot
	for !s.stop.Load() {
		kept, last := uint32(0), uint32(0)
		for nr := uint32(0); next(nr, &h); nr = h.TID + 1 {
			if err := checkSeal(&h); err != nil {
				s.fail(err)
				return
			}
			if h.TID <= last || h.TGID != h.TID || h.Gen == 0 {
				s.fail(fmt.Errorf("task %d of %d, gen %d, came after %d", h.TID, h.TGID, h.Gen, last))
				return
			}
			last = h.TID
			if h.TID%2 == 0 && h.TID <= 2*stressKept {
				kept++
			}
		}
		if kept != stressKept {
			s.fail(fmt.Errorf("%d kept processes were listed, want each of %d once", kept, stressKept))
			return
		}
		s.lists.Add(1)
	}
}

// run lets writers and readers at each other for a while, or until one fails.
func (s *stress) run(limit time.Duration, actors ...func()) error {
	var wg sync.WaitGroup
	for _, actor := range actors {
		wg.Go(actor)
	}
	time.AfterFunc(limit, func() { s.stop.Store(true) })
	wg.Wait()
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Two broken writers must be caught by the same check: one that publishes the
// number before the record, and one that lets go of the tag for a moment.
func TestStressCatchesBusted(t *testing.T) {
	for name, write := range map[string]func(w *table.Writer, slot, count uint32){
		"the number before the record": func(w *table.Writer, slot, count uint32) {
			const tid = 2*stressKept + 1
			if _, err := w.Tree().Insert(tid, slot); err != nil {
				panic(err)
			}
			w.Tree().SetTag(tid, radix.Tree22TGID)
			// The record still is the last life's.
			h := table.Hot{TID: tid, TGID: tid, Gen: count, Comm: sealed(tid-2, count)}
			w.Put(slot, &h)
			runtime.Gosched()
			h.Comm = sealed(tid, count)
			w.Put(slot, &h)
			w.Tree().Delete(tid)
		},
		"the tag let go": func(w *table.Writer, _, _ uint32) {
			w.Tree().ClearTag(2*stressKept, radix.Tree22TGID)
			runtime.Gosched()
			w.Tree().SetTag(2*stressKept, radix.Tree22TGID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := table.NewAnonymous()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			e := New(w, userHz)
			for i := range uint32(stressKept) {
				tid := 2 + 2*i
				f := ForkEvent{TID: tid, TGID: tid, PPID: 1, AtNs: 1, BootNs: 1}
				if err := e.ObserveFork(&f, new(Change)); err != nil {
					t.Fatal(err)
				}
				e.ObserveRename(tid, sealed(tid, 0), 2, new(Change))
			}
			slot, err := w.NewSlot()
			if err != nil {
				t.Fatal(err)
			}
			s := &stress{}
			err = s.run(10*time.Second,
				func() { s.list(e.Namespace().NextLeader) },
				func() { s.list(e.Namespace().NextLeader) },
				func() {
					for count := uint32(1); !s.stop.Load(); count++ {
						write(w, slot, count)
					}
				})
			if err == nil {
				t.Error("the broken writer was not caught")
			}
		})
	}
}
