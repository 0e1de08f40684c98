package perf

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/live"
)

// TestWrapAround: records cross the end of the ring at every offset.
func TestWrapAround(t *testing.T) {
	for off := uint64(0); off < 4096; off += 8 {
		f := newFakeRing(4096).startAt(1<<40 + off)
		var m merge
		m.setRings([]*ring{f.reader(0)})
		var want []live.Event
		for id := uint32(1); ; id++ {
			if !f.write(commRecord(id, id, "fifteen-bytes-x", true, uint64(id))) {
				break
			}
			want = append(want, live.Event{Kind: live.Exec, PID: id, TID: id, TimeNs: uint64(id),
				Comm: comm("fifteen-bytes-x"), Flags: live.HasComm})
		}
		if len(want) != 4096/56 {
			t.Fatalf("offset %d: ring holds %d records, want %d", off, len(want), 4096/56)
		}
		got, err := drainAll(&m, 1000, 10)
		if err != nil {
			t.Fatalf("offset %d: %v", off, err)
		}
		compare(t, got, want)
	}
}

// TestOldRecords: records too old for a key come first, each ring in its order.
func TestOldRecords(t *testing.T) {
	const now = 1 << 60
	old, recent := newFakeRing(4096), newFakeRing(4096)
	var m merge
	m.setRings([]*ring{recent.reader(0), old.reader(1)})
	recent.write(exitRecord(3, 3, now-spanNs+1))
	recent.write(exitRecord(4, 4, now))
	recent.write(exitRecord(5, 5, now+1))
	old.write(exitRecord(1, 1, 0))
	old.write(exitRecord(2, 2, now-spanNs-1))
	got, err := drainAll(&m, now, 8)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, []live.Event{
		{Kind: live.Exit, PID: 1, TID: 1, TimeNs: 0},
		{Kind: live.Exit, PID: 2, TID: 2, TimeNs: now - spanNs - 1},
		{Kind: live.Exit, PID: 3, TID: 3, TimeNs: now - spanNs + 1},
		{Kind: live.Exit, PID: 4, TID: 4, TimeNs: now},
	})
}

// TestModelMerge plays random lives over 1 to 64 rings: each record is stamped,
// and committed later; its cause is a record that was committed before it was
// stamped, mostly on another ring. Drains of random sizes come in between.
func TestModelMerge(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for _, rings := range []int{1, 2, 3, 4, 5, 8, 13, 32, 63, 64} {
		t.Run(fmt.Sprintf("rings=%d", rings), func(t *testing.T) {
			for seed := range seeds {
				modelMerge(t, rings, rand.New(rand.NewPCG(seed, uint64(rings))))
			}
		})
	}
}

type modelRecord struct {
	ring  int
	cause uint32
	time  uint64
}

func modelMerge(t *testing.T, rings int, rnd *rand.Rand) {
	t.Helper()
	const total = 1500
	var m merge
	fakes := make([]*fakeRing, rings)
	readers := make([]*ring, rings)
	for i := range fakes {
		fakes[i] = newFakeRing(1 << 17).startAt(rnd.Uint64N(1<<17) &^ 7)
		readers[i] = fakes[i].reader(i)
	}
	m.setRings(readers)

	var (
		clock     = uint64(1) << 52 // far beyond spanNs
		records   = []modelRecord{{}}
		inFlight  = make([]uint32, rings) // stamped and not committed, by ring
		committed = []uint32{0}
		delivered = make([]bool, total+1)
		lastOf    = make([]uint32, rings)
		count     int
	)
	deliver := func(events []live.Event) {
		for _, ev := range events {
			r := records[ev.PID]
			if ev.TimeNs != r.time || ev.PPID != r.cause {
				t.Fatalf("record %d: got %+v, want %+v", ev.PID, ev, r)
			}
			if delivered[ev.PID] {
				t.Fatalf("record %d: delivered twice", ev.PID)
			}
			if r.cause != 0 && !delivered[r.cause] {
				t.Fatalf("record %d of ring %d: delivered before its cause %d of ring %d",
					ev.PID, r.ring, r.cause, records[r.cause].ring)
			}
			if ev.PID < lastOf[r.ring] {
				t.Fatalf("ring %d: record %d delivered after %d", r.ring, ev.PID, lastOf[r.ring])
			}
			delivered[ev.PID], lastOf[r.ring] = true, ev.PID
			count++
		}
	}
	commit := func(i int) {
		if id := inFlight[i]; id != 0 {
			if !fakes[i].write(forkRecord(id, records[id].cause, id, 1, records[id].time)) {
				t.Fatal("ring of the model is too small")
			}
			committed = append(committed, id)
			inFlight[i] = 0
		}
	}
	for len(records) <= total {
		clock += rnd.Uint64N(3)
		switch i := rnd.IntN(rings); rnd.IntN(8) {
		case 0, 1, 2, 3: // stamp; the last commit there is over first
			commit(i)
			clock++
			back := min(len(committed), 1+rnd.IntN(6))
			cause := committed[len(committed)-back]
			inFlight[i] = uint32(len(records))
			records = append(records, modelRecord{ring: i, cause: cause, time: clock})
		case 4, 5, 6:
			commit(i)
		case 7:
			if rnd.IntN(4) != 0 {
				continue
			}
			got, err := drainAll(&m, clock, 1+rnd.IntN(100))
			if err != nil {
				t.Fatal(err)
			}
			deliver(got)
		}
	}
	for i := range rings {
		commit(i)
	}
	got, err := drainAll(&m, clock, 64)
	if err != nil {
		t.Fatal(err)
	}
	deliver(got)
	if count != total {
		t.Fatalf("delivered %d records, want %d", count, total)
	}
	for i := 1; i < len(got); i++ {
		if got[i].TimeNs < got[i-1].TimeNs {
			t.Fatalf("within a round: time %d after %d", got[i].TimeNs, got[i-1].TimeNs)
		}
	}
}

// TestLitmusCut runs every interleaving of one pair, cause R and effect D on
// two rings, with the steps of one round, and then a last round. R must never
// come after D. The same steps with the heads before the clock must be caught.
func TestLitmusCut(t *testing.T) {
	clockFirst := []string{"clock", "head 0", "head 1"}
	headsFirst := []string{"head 0", "head 1", "clock"}
	if bad := litmusCut(t, clockFirst); bad != 0 {
		t.Errorf("clock first: %d interleavings deliver the effect before its cause, want 0", bad)
	}
	if bad := litmusCut(t, headsFirst); bad == 0 {
		t.Errorf("heads first: no interleaving delivers the effect before its cause; the test cannot see")
	}
}

func litmusCut(t *testing.T, reader []string) (bad int) {
	writer := []string{"stamp R", "commit R", "stamp D", "commit D"}
	steps := len(writer) + len(reader)
	for causeRing := range 2 {
		for set := range 1 << steps { // bit i: step i is the reader's
			if bits.OnesCount(uint(set)) != len(reader) {
				continue
			}
			l := newLitmus(causeRing)
			w, r := 0, 0
			for i := range steps {
				l.clock++
				if set>>i&1 != 0 {
					l.step(reader[r])
					r++
				} else {
					l.step(writer[w])
					w++
				}
			}
			events := l.drain(t)
			l.clock++
			more, err := drainAll(&l.merge, l.clock, 8)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, more...)
			if len(events) != 2 {
				t.Fatalf("set %#x: got %d events, want 2", set, len(events))
			}
			if events[0].PID != 'R' {
				bad++
			}
		}
	}
	return bad
}

type litmus struct {
	merge merge
	fakes [2]*fakeRing
	cause int // ring of R
	clock uint64
	cut   uint64
	stamp uint64
}

func newLitmus(cause int) *litmus {
	l := &litmus{cause: cause, fakes: [2]*fakeRing{newFakeRing(4096), newFakeRing(4096)}}
	l.merge.setRings([]*ring{l.fakes[0].reader(0), l.fakes[1].reader(1)})
	return l
}

func (l *litmus) step(name string) {
	switch name {
	case "stamp R", "stamp D":
		l.stamp = l.clock
	case "commit R":
		l.fakes[l.cause].write(exitRecord('R', 'R', l.stamp))
	case "commit D":
		l.fakes[1-l.cause].write(exitRecord('D', 'D', l.stamp))
	case "clock":
		l.cut = l.clock
	case "head 0":
		l.merge.rings[0].loadHead()
	case "head 1":
		l.merge.rings[1].loadHead()
	}
}

// drain ends the round whose clock and heads were taken by steps.
func (l *litmus) drain(t *testing.T) []live.Event {
	if err := l.merge.build(l.cut); err != nil {
		t.Fatal(err)
	}
	buf := make([]live.Event, 8)
	n, err := l.merge.drain(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// TestStressCause: writers hand a token round, each writing a record before it
// hands on, while another goroutine drains. Small rings, so that the tail
// matters too.
func TestStressCause(t *testing.T) {
	const writers = 4
	tokens := uint64(50_000)
	if testing.Short() {
		tokens = 5_000
	}
	var (
		clock, token atomic.Uint64
		stop         atomic.Bool
		wg           sync.WaitGroup
		m            merge
		fakes        [writers]*fakeRing
		readers      []*ring
	)
	for i := range fakes {
		fakes[i] = newFakeRing(4096)
		readers = append(readers, fakes[i].reader(i))
	}
	m.setRings(readers)
	for i := range fakes {
		wg.Go(func() {
			for !stop.Load() {
				n := token.Load()
				if n == tokens {
					return
				}
				if n%writers != uint64(i) {
					pause()
					continue
				}
				rec := exitRecord(uint32(n+1), uint32(n+1), clock.Add(1))
				for !stop.Load() && !fakes[i].write(rec) {
					fakes[i].pending, fakes[i].lost = 0, 0 // try again: nothing is lost
					pause()
				}
				token.Store(n + 1)
			}
		})
	}
	defer wg.Wait()
	defer stop.Store(true)

	buf := make([]live.Event, 32)
	deadline := time.Now().Add(30 * time.Second)
	for next := uint32(1); next <= uint32(tokens); {
		if time.Now().After(deadline) {
			t.Fatalf("record %d has not come", next)
		}
		if err := m.begin(clock.Load()); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := m.drain(buf)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range buf[:n] {
				if ev.PID != next {
					t.Fatalf("got record %d, want %d", ev.PID, next)
				}
				next++
			}
			if n < len(buf) {
				break
			}
		}
		pause()
	}
}

func TestDrainAllocs(t *testing.T) {
	for _, rings := range []int{2, 64} {
		d := newDrainLoad(rings, 4096)
		got := testing.AllocsPerRun(20, func() { d.run() })
		if got != 0 {
			t.Errorf("rings=%d: got %v allocations per round of %d events, want 0", rings, got, d.events)
		}
	}
}

// drainLoad is a full round over rings that can be drained again and again.
type drainLoad struct {
	merge  merge
	fakes  []*fakeRing
	buf    []live.Event
	cut    uint64
	events int
}

// newDrainLoad spreads events, fork, exec and exit in equal parts, over the
// rings at random, as equally busy CPUs do.
func newDrainLoad(rings, events int) *drainLoad {
	rnd := rand.New(rand.NewPCG(1, 2))
	d := &drainLoad{buf: make([]live.Event, 512), events: events}
	var readers []*ring
	for i := range rings {
		d.fakes = append(d.fakes, newFakeRing(1<<20/rings*2))
		readers = append(readers, d.fakes[i].reader(i))
	}
	for id := range uint32(events) {
		rec := forkRecord(id+2, 1, id+2, 1, 1_000_000+uint64(id)*100)
		switch id % 3 {
		case 1:
			rec = commRecord(id+2, id+2, "true", true, timeOf(rec))
		case 2:
			rec = exitRecord(id+2, id+2, timeOf(rec))
		}
		if !d.fakes[rnd.IntN(rings)].write(rec) {
			panic("ring of the load is too small")
		}
		d.cut = timeOf(rec)
	}
	d.merge.setRings(readers)
	return d
}

// run rewinds the rings and drains them.
func (d *drainLoad) run() (sum uint64) {
	for _, r := range d.merge.rings {
		r.pos, r.tail, r.page.Data_tail = 0, 0, 0
	}
	if err := d.merge.begin(d.cut); err != nil {
		panic(err)
	}
	for got := 0; ; {
		n, err := d.merge.drain(d.buf)
		if err != nil {
			panic(err)
		}
		sum += sumEvents(d.buf[:n])
		got += n
		if n < len(d.buf) {
			if got != d.events {
				panic(fmt.Sprintf("drained %d events of %d", got, d.events))
			}
			return sum
		}
	}
}

//go:noinline
func sumEvents(events []live.Event) (sum uint64) {
	for i := range events {
		sum += uint64(events[i].PID) + events[i].TimeNs
	}
	return sum
}

func BenchmarkDrain(b *testing.B) {
	for _, rings := range []int{2, 64} {
		b.Run(fmt.Sprintf("rings=%d", rings), func(b *testing.B) {
			d := newDrainLoad(rings, 8192)
			b.ReportAllocs()
			for b.Loop() {
				d.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(d.events), "ns/event")
		})
	}
}
