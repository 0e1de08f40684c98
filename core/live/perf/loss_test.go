package perf

import (
	"math/rand/v2"
	"testing"

	"github.com/kpidd/kpidd/core/live"
)

// TestModelLoss overruns a small ring at random, drains it at random, and asks
// for the kernel's count at random, as read(2) does. The told losses must never
// exceed the count, equal it after asking, and every record is either delivered
// or told to be lost.
func TestModelLoss(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := newFakeRing(4096).startAt(rnd.Uint64N(4096) &^ 7)
		var m merge
		r := f.reader(0)
		m.setRings([]*ring{r})
		var clock, written, delivered, told uint64
		drain := func() {
			// Now and then a cut before the last records, which stay.
			events, err := drainAll(&m, clock-min(clock, rnd.Uint64N(3)*20), 1+rnd.IntN(40))
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, ev := range events {
				if ev.Kind == live.Lost {
					told += ev.Lost
				} else {
					delivered++
				}
			}
		}
		for range 300 {
			switch rnd.IntN(6) {
			case 0, 1, 2:
				for range rnd.IntN(60) {
					clock += 2
					written++
					f.write(exitRecord(uint32(written), uint32(written), clock))
				}
			case 3, 4:
				drain()
			case 5: // as settle does after read(2)
				told += r.tell(f.lost)
				if r.told != f.lost {
					t.Fatalf("seed %d: told %d after asking, want %d", seed, r.told, f.lost)
				}
			}
			// What drain has found may still wait for its turn in the ring.
			if told > f.lost {
				t.Fatalf("seed %d: told %d lost, the ring has lost %d", seed, told, f.lost)
			}
		}
		// The clock passes all records; the rest is told by asking.
		clock += 100
		for range 2 {
			events, err := drainAll(&m, clock, 16)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, ev := range events {
				if ev.Kind == live.Lost {
					told += ev.Lost
				} else {
					delivered++
				}
			}
		}
		told += r.tell(f.lost)
		if told != f.lost || delivered+told != written {
			t.Fatalf("seed %d: told %d lost and delivered %d; the ring lost %d of %d",
				seed, told, delivered, f.lost, written)
		}
		if f.lost == 0 {
			t.Fatalf("seed %d: the model lost nothing", seed)
		}
	}
}

// TestFullIsNoticed: a ring that has lost records was seen to be full by the
// release that made room again.
func TestFullIsNoticed(t *testing.T) {
	for _, tt := range []struct {
		records int
		want    bool
	}{{10, false}, {4096 / 56, true}, {4096/56 + 5, true}} {
		f := newFakeRing(4096)
		var m merge
		r := f.reader(0)
		m.setRings([]*ring{r})
		for i := range tt.records {
			f.write(exitRecord(1, 1, uint64(i)))
		}
		if _, err := drainAll(&m, 1000, 7); err != nil {
			t.Fatal(err)
		}
		if r.full != tt.want {
			t.Errorf("%d records: got full %t, want %t", tt.records, r.full, tt.want)
		}
	}
}

func TestSettleWithoutEvent(t *testing.T) {
	r := newFakeRing(4096).reader(0)
	if ev, tell := r.settle(5); tell {
		t.Errorf("ring in use: got %+v, want nothing", ev)
	}
	r.gone = true
	want := live.Event{Kind: live.Blind, TimeNs: 5}
	if ev, tell := r.settle(5); !tell || ev != want {
		t.Errorf("ring that ends without a count: got %+v, %t; want %+v", ev, tell, want)
	}
}

func TestAddLoss(t *testing.T) {
	var all []RingLoss
	all = addLoss(all, RingLoss{CPU: 1, Kernel: 5, Told: 4})
	all = addLoss(all, RingLoss{CPU: 0, Kernel: 1, Told: 1})
	all = addLoss(all, RingLoss{CPU: 1, Kernel: 2, Told: 2})
	want := []RingLoss{{CPU: 1, Kernel: 7, Told: 6}, {CPU: 0, Kernel: 1, Told: 1}}
	for i := range want {
		if len(all) != len(want) || all[i] != want[i] {
			t.Fatalf("got %v, want %v", all, want)
		}
	}
}
