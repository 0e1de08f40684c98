package live

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// stamp fills every field of a record from n, so that a torn copy shows.
func stamp(r *Record, n uint64) {
	*r = Record{
		TimeNs: n, StartTicks: n, PID: uint32(n), TID: uint32(n), PPID: uint32(n),
		Type: RecFork, Flags: EventFlags(n), Code: uint16(n),
	}
	for i := range r.Comm {
		r.Comm[i] = byte(n)
	}
}

// checkRecord checks that r is whole and is record seq of a feed to which
// record n was published as stamp(n).
func checkRecord(r *Record, seq uint64) error {
	if r.Seq != seq {
		return fmt.Errorf("got record %d where %d belongs", r.Seq, seq)
	}
	var want Record
	stamp(&want, seq)
	want.Seq = seq
	if *r != want {
		return fmt.Errorf("torn record: got %+v, want %+v", *r, want)
	}
	return nil
}

// publish appends n records, each stamped with its own Seq.
func publish(f *Feed, n int) {
	for range n {
		var r Record
		stamp(&r, f.Last()+1)
		f.Publish(&r)
	}
}

func TestNewFeedSize(t *testing.T) {
	for _, tt := range []struct{ size, want int }{
		{-1, 2}, {0, 2}, {1, 2}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1000, 1024}, {FeedSize, FeedSize},
	} {
		if got := len(NewFeed(tt.size).ring); got != tt.want {
			t.Errorf("NewFeed(%d): got a ring of %d, want %d", tt.size, got, tt.want)
		}
	}
}

func TestFeedNext(t *testing.T) {
	for _, tt := range []struct {
		name      string
		published int
		after     uint64
		buf       int
		n         int
		missed    uint64
	}{
		{"empty", 0, 0, 4, 0, 0},
		{"all", 5, 0, 8, 5, 0},
		{"some", 5, 3, 8, 2, 0},
		{"small buffer", 5, 0, 3, 3, 0},
		{"no buffer", 5, 0, 0, 0, 0},
		{"nothing new", 5, 5, 8, 0, 0},
		{"place of the future", 5, 1 << 60, 8, 0, 0},
		{"last place of all", 5, 1<<64 - 1, 8, 0, 0},
		{"just full", 8, 0, 8, 8, 0},
		{"one overwritten", 9, 0, 8, 8, 1},
		{"many rounds", 800, 0, 8, 8, 792},
		{"overwritten, small buffer", 20, 2, 3, 3, 10},
		{"place at the edge", 20, 12, 8, 8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFeed(8)
			publish(f, tt.published)
			buf := make([]Record, tt.buf)
			n, missed := f.Next(tt.after, buf)
			if n != tt.n || missed != tt.missed {
				t.Fatalf("Next(%d): got %d, missed %d, want %d, missed %d", tt.after, n, missed, tt.n, tt.missed)
			}
			for i := range buf[:n] {
				if err := checkRecord(&buf[i], tt.after+missed+uint64(i)+1); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// nextUnchecked is Next without the check of Seq.
func nextUnchecked(f *Feed, after, last uint64, buf []Record) (n int, missed uint64) {
	seq := max(after+1, f.oldest(last))
	missed = seq - 1 - after
	for ; n < len(buf) && seq <= last; seq++ {
		if !f.ring[seq&f.mask].TryRead(buf[n].words()) {
			break
		}
		n++
	}
	return n, missed
}

// overrunBetween lets records be published between a reader's load of last and
// its copies, reads with next until nothing is left, and checks what came.
func overrunBetween(published, between int, next func(f *Feed, after, last uint64, buf []Record) (int, uint64)) error {
	f := NewFeed(8)
	publish(f, published)
	last := f.Last()
	publish(f, between)
	buf := make([]Record, 3)
	var after, received, lost uint64
	for {
		n, missed := next(f, after, last, buf)
		for i := range buf[:n] {
			if err := checkRecord(&buf[i], after+missed+uint64(i)+1); err != nil {
				return err
			}
		}
		received, lost = received+uint64(n), lost+missed
		after += missed + uint64(n)
		if n == 0 && missed == 0 {
			break
		}
		last = f.Last()
	}
	total := uint64(published + between)
	if received+lost != total || after != total {
		return fmt.Errorf("received %d + missed %d, at %d; want %d", received, lost, after, total)
	}
	if want := max(total, 8) - 8; lost != want {
		return fmt.Errorf("missed %d, want %d", lost, want)
	}
	return nil
}

func TestFeedOverrunBetween(t *testing.T) {
	caught := 0
	for published := 1; published <= 20; published++ {
		for between := range 30 {
			if err := overrunBetween(published, between, (*Feed).next); err != nil {
				t.Errorf("published %d, then %d: %v", published, between, err)
			}
			if overrunBetween(published, between, nextUnchecked) != nil {
				caught++
			}
		}
	}
	if caught == 0 {
		t.Error("a reader that does not check Seq passes")
	}
}

// TestFeedWriterInside checks that a reader goes past a slot in which the writer
// is at work, without waiting, and counts its old record as missed.
func TestFeedWriterInside(t *testing.T) {
	f := NewFeed(8)
	publish(f, 8)
	// Record 1 lies in slot 1, and record 9 comes there next: as if its writer
	// had stopped after the first store.
	sequence := (*uint64)(unsafe.Pointer(&f.ring[1]))
	*sequence |= 1
	buf := make([]Record, 8)
	n, missed := f.Next(0, buf)
	if n != 7 || missed != 1 {
		t.Fatalf("got %d, missed %d, want 7, missed 1", n, missed)
	}
	if err := checkRecord(&buf[0], 2); err != nil {
		t.Error(err)
	}
	if n, missed = f.Next(0, buf[:1]); n != 1 || missed != 1 {
		t.Errorf("again: got %d, missed %d, want 1, missed 1", n, missed)
	}
}

func TestStressFeed(t *testing.T) {
	total := 2_000_000
	if testing.Short() {
		total = 200_000
	}
	f := NewFeed(64)
	var wg sync.WaitGroup
	var overruns atomic.Uint64
	for reader := range 3 {
		wg.Go(func() {
			buf := make([]Record, 5+reader*20)
			var after, received, lost uint64
			for round := 0; ; round++ {
				n, missed := f.Next(after, buf)
				for i := range buf[:n] {
					if err := checkRecord(&buf[i], after+missed+uint64(i)+1); err != nil {
						t.Error(err)
						return
					}
				}
				received, lost = received+uint64(n), lost+missed
				after += missed + uint64(n)
				if round%1000 == 0 && reader == 2 {
					time.Sleep(100 * time.Microsecond) // the slow one
				}
				if n > 0 || missed > 0 {
					continue
				}
				if err := f.Wait(t.Context(), after); errors.Is(err, ErrFeedClosed) {
					break
				} else if err != nil {
					t.Error(err)
					return
				}
			}
			if received+lost != uint64(total) {
				t.Errorf("reader %d: received %d + missed %d, want %d", reader, received, lost, total)
			}
			overruns.Add(lost)
		})
	}
	for i := range total / 100 {
		publish(f, 100)
		f.Flush()
		if i%16 == 0 {
			runtime.Gosched()
		}
	}
	f.Close()
	wg.Wait()
	t.Logf("missed by the readers: %d of %d", overruns.Load(), 3*total)
	if overruns.Load() == 0 {
		t.Error("no reader was overrun; the test shows nothing")
	}
}

// TestStressFeedWake plays ping-pong over two feeds: one lost wake-up and it
// stands still.
func TestStressFeedWake(t *testing.T) {
	rounds := 50_000
	if testing.Short() {
		rounds = 5_000
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	ping, pong := NewFeed(2), NewFeed(2)
	var wg sync.WaitGroup
	answer := func(from, to *Feed) {
		for i := range uint64(rounds) {
			if err := from.Wait(ctx, i); err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			publish(to, 1)
			to.Flush()
		}
	}
	wg.Go(func() { answer(ping, pong) })
	publish(ping, 1)
	ping.Flush()
	answer(pong, ping)
	wg.Wait()
}

// TestLitmusFeedWake lets one goroutine fall asleep while the other publishes
// and flushes, and keeps the two as close together as it can: it publishes later
// when the waiter came too late to sleep, and earlier when it slept. Forbidden:
// the waiter missed the record and the writer missed the waiter (pair C).
func TestLitmusFeedWake(t *testing.T) {
	rounds := uint64(20_000)
	if testing.Short() {
		rounds = 4_000
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	f := NewFeed(2)
	var started, awake atomic.Uint64
	spin := func(until *atomic.Uint64, round uint64) bool {
		for tries := 1; until.Load() < round; tries++ {
			if tries%1024 == 0 {
				if ctx.Err() != nil {
					return false
				}
				runtime.Gosched()
			}
		}
		return true
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for round := uint64(1); round <= rounds && spin(&started, round); round++ {
			if err := f.Wait(ctx, round-1); err != nil {
				t.Errorf("round %d: the waiter sleeps though record %d is there: %v", round, f.Last(), err)
				return
			}
			awake.Store(round)
		}
	})
	distance := 0
	for round := uint64(1); round <= rounds; round++ {
		channel := f.wake.Load()
		started.Store(round)
		delay(distance + int(round%16))
		f.Publish(&Record{})
		f.Flush()
		if f.wake.Load() == channel {
			distance = min(distance+1, 10_000)
		} else {
			distance = max(distance-1, 0)
		}
		if !spin(&awake, round) {
			break
		}
	}
	wg.Wait()
}

//go:noinline
func delay(n int) {
	for range n {
		sink++
	}
}

func TestFeedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFeed(8)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		wait := func(after uint64) { result <- f.Wait(ctx, after) }
		pending := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-result:
				t.Fatalf("%s: Wait returned %v, want it to sleep", what, err)
			default:
			}
		}

		go wait(0)
		pending("empty feed")
		publish(f, 1)
		pending("published, not flushed")
		f.Flush()
		if err := <-result; err != nil {
			t.Errorf("after Flush: got %v, want nil", err)
		}
		if err := f.Wait(ctx, 0); err != nil {
			t.Errorf("record is there: got %v, want nil", err)
		}

		go wait(5)
		pending("later record")
		publish(f, 1)
		f.Flush()
		pending("not yet the one")
		f.Close()
		if err := <-result; !errors.Is(err, ErrFeedClosed) {
			t.Errorf("after Close: got %v, want %v", err, ErrFeedClosed)
		}
		if err := f.Wait(ctx, 1); err != nil {
			t.Errorf("closed, record is there: got %v, want nil", err)
		}

		f = NewFeed(8)
		go wait(0)
		pending("another feed")
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("after cancel: got %v, want %v", err, context.Canceled)
		}
	})
}

// lateContext calls before when its user has looked for the last time and is
// about to sleep on Done.
type lateContext struct {
	context.Context
	before func()
}

func (c lateContext) Done() <-chan struct{} {
	c.before()
	return c.Context.Done()
}

// TestFeedWakeAtLastMoment flushes between the waiter's last look and its sleep.
func TestFeedWakeAtLastMoment(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	f := NewFeed(2)
	for i := range uint64(3) {
		late := lateContext{ctx, func() { publish(f, 1); f.Flush() }}
		if err := f.Wait(late, i); err != nil {
			t.Errorf("record %d: got %v, want nil", i+1, err)
		}
	}
	if err := f.Wait(lateContext{ctx, f.Close}, 3); !errors.Is(err, ErrFeedClosed) {
		t.Errorf("Close: got %v, want %v", err, ErrFeedClosed)
	}
}

func TestGapRecord(t *testing.T) {
	gap := GapRecord(7, 42)
	if gap.Type != RecGap || gap.TimeNs != 7 || gap.Lost() != 42 {
		t.Errorf("GapRecord(7, 42): got %+v", gap)
	}
	other := Record{Type: RecFork, StartTicks: 42}
	if got := other.Lost(); got != 0 {
		t.Errorf("Lost of a fork: got %d, want 0", got)
	}
}

func TestFeedAllocs(t *testing.T) {
	f := NewFeed(64)
	var r Record
	buf := make([]Record, 16)
	var after uint64
	for name, step := range map[string]func(){
		"Publish": func() { stamp(&r, 1); f.Publish(&r); f.Flush() },
		"Next": func() {
			f.Publish(&r)
			n, missed := f.Next(after, buf)
			after += missed + uint64(n)
		},
	} {
		if got := testing.AllocsPerRun(1000, step); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, got)
		}
	}
}

//go:noinline
func publishMany(f *Feed, r *Record, n int) {
	for range n {
		f.Publish(r)
	}
}

func BenchmarkFeedPublish(b *testing.B) {
	const batch = 1024
	f := NewFeed(FeedSize)
	var r Record
	for b.Loop() {
		publishMany(f, &r, batch)
		f.Flush()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/record")
}

//go:noinline
func sumAll(f *Feed, buf []Record) (sum uint64) {
	for after := uint64(0); ; {
		n, missed := f.Next(after, buf)
		if n == 0 {
			return sum
		}
		for i := range buf[:n] {
			sum += uint64(buf[i].PID)
		}
		after += missed + uint64(n)
	}
}

var sink uint64

func BenchmarkFeedNext(b *testing.B) {
	const records = 1024
	f := NewFeed(records)
	publish(f, records)
	buf := make([]Record, 128)
	for b.Loop() {
		sink += sumAll(f, buf)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
}

func ExampleFeed() {
	feed := NewFeed(FeedSize)
	feed.Publish(&Record{Type: RecExec, PID: 42, TID: 42, Comm: [16]byte{'t', 'r', 'u', 'e'}})
	feed.Flush()

	buf := make([]Record, 128)
	n, missed := feed.Next(0, buf)
	fmt.Println(n, missed, buf[0].Seq, buf[0].PID)
	// Output: 1 0 1 42
}
