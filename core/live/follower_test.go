package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/procfile"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/core/task"
)

// script is a source that delivers what a test puts into it.
type script struct {
	info   Info
	rounds chan []Event // one for each Wait that returns before its time
	queue  []Event
	dead   error
}

func newScript() *script {
	return &script{info: Info{Name: "script", LossKind: "exact"}, rounds: make(chan []Event, 64)}
}

func (s *script) Info() Info { return s.info }

func (s *script) Wait(timeout time.Duration) error {
	select {
	case events, ok := <-s.rounds:
		if !ok {
			return s.dead
		}
		s.queue = append(s.queue, events...)
	case <-time.After(timeout):
	}
	return nil
}

func (s *script) Drain(buf []Event) (n int, more bool, err error) {
	n = copy(buf, s.queue)
	s.queue = s.queue[n:]
	return n, len(s.queue) > 0, nil
}

func (s *script) Wake() {
	select {
	case s.rounds <- nil:
	default:
	}
}

func (s *script) Close() error { return nil }

// world is a follower over a script and a /proc made of files.
type world struct {
	testing.TB
	src  *script
	root string
	tab  *table.Writer
	f    *Follower
	feed *Feed
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, src: newScript(), root: t.TempDir(), feed: NewFeed(1024)}
	w.proc(1, 1, 0, 'S', 10, "init")
	proc, err := procfile.Open(w.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close() })
	if w.tab, err = table.NewAnonymous(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.tab.Close() })
	w.f = NewFollower(Config{
		Source: w.src, Engine: task.New(w.tab, 100), Table: w.tab, Feed: w.feed, Proc: proc,
		Logf: t.Logf,
	})
	return w
}

// proc makes a task of the fixture.
func (w *world) proc(tid, tgid, ppid uint32, state byte, start uint64, comm string) {
	w.Helper()
	dir := filepath.Join(w.root, fmt.Sprint(tgid), "task", fmt.Sprint(tid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	stat := fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0%s\n", tid, comm, state, ppid, start, strings.Repeat(" 0", 28))
	for file, text := range map[string]string{"stat": stat, "comm": comm + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) gone(tgid uint32) {
	w.Helper()
	if err := os.RemoveAll(filepath.Join(w.root, fmt.Sprint(tgid))); err != nil {
		w.Fatal(err)
	}
}

// run starts the follower and waits until the table is whole.
func (w *world) run() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	w.f.Ready = func() { close(ready) }
	go func() { done <- w.f.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("run: got %v, want nil after the stop", err)
		}
	})
	select {
	case <-ready:
	case <-time.After(5 * time.Second):
		w.Fatal("not ready after 5 s")
	}
}

// eventually waits for a condition.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("%s: not after 5 s", what)
		}
	}
}

func (w *world) has(tid uint32) bool {
	_, ok := w.f.Engine.Task(tid)
	return ok
}

func (w *world) types() (types []RecordType) {
	var buf [64]Record
	n, _ := w.feed.Next(0, buf[:])
	for i := range buf[:n] {
		types = append(types, buf[i].Type)
	}
	return types
}

func name(s string) (c [16]byte) {
	copy(c[:15], s)
	return c
}

func at(e Event) Event {
	e.TimeNs = table.MonotonicNs()
	return e
}

func fork(pid, ppid uint32) Event { return at(Event{Kind: Fork, PID: pid, TID: pid, PPID: ppid}) }

func TestFollowerAppliesEvents(t *testing.T) {
	w := newWorld(t)
	w.run()
	if h, ok := w.f.Engine.Task(1); !ok || string(h.Name()) != "init" || h.StartTicks != 10 {
		t.Fatalf("snapshot: got %+v, %v", h, ok)
	}
	w.src.rounds <- []Event{
		fork(100, 1),
		at(Event{Kind: Fork, PID: 100, TID: 101, PTID: 100}),
		at(Event{Kind: Exec, PID: 100, TID: 100, Comm: name("sleep"), Flags: HasComm}),
		at(Event{Kind: Comm, PID: 100, TID: 100, Comm: name("renamed")}),
	}
	w.eventually("renamed", func() bool {
		h, _ := w.f.Engine.Task(100)
		return string(h.Name()) == "renamed"
	})
	w.src.rounds <- []Event{at(Event{Kind: Exit, PID: 100, TID: 100, Code: 0x0100, Flags: HasCode})}
	w.eventually("reaped", func() bool { return !w.has(100) }) // nobody has number 100 of this test
	want := []RecordType{RecFork, RecFork, RecExec, RecComm, RecExit}
	if got := w.types(); !slices.Equal(got, want) {
		t.Errorf("records: got %v, want %v", got, want)
	}
	if got := atomic.LoadUint64(&w.tab.Header().Events); got != 5 {
		t.Errorf("events: got %d, want 5", got)
	}
}

// After a loss the table is stale, then equal to /proc, and both are told.
func TestFollowerRepairsLoss(t *testing.T) {
	w := newWorld(t)
	w.proc(50, 50, 1, 'S', 20, "dies unseen")
	w.run()
	w.gone(50)
	w.proc(60, 60, 1, 'S', 30, "born unseen")
	w.src.rounds <- []Event{at(Event{Kind: Lost, Lost: 7}), at(Event{Kind: Lost, Lost: 5})}
	h := w.tab.Header()
	w.eventually("resync", func() bool { return atomic.LoadUint64(&h.Resyncs) == 1 })
	if w.has(50) || !w.has(60) {
		t.Errorf("after the repair: 50 is there: %v, 60: %v; want only 60", w.has(50), w.has(60))
	}
	if gaps, lost := atomic.LoadUint64(&h.Gaps), atomic.LoadUint64(&h.Lost); gaps != 1 || lost != 12 {
		t.Errorf("got %d gaps, %d lost; want 1, 12", gaps, lost)
	}
	if atomic.LoadUint64(&h.StaleSinceNs) != 0 {
		t.Error("still stale after the repair")
	}
	w.eventually("told", func() bool {
		return slices.Equal(w.types(), []RecordType{RecGap, RecGap, RecResync})
	})
}

// A repair that cannot read /proc leaves the table stale, and is tried again.
func TestFollowerRepairsLater(t *testing.T) {
	w := newWorld(t)
	var logged atomic.Uint64
	w.f.Logf = func(string, ...any) { logged.Add(1) }
	w.run()
	stat := filepath.Join(w.root, "60", "task", "60", "stat")
	if err := os.MkdirAll(stat, 0o755); err != nil { // reading it is an error, and not that of a task that is gone
		t.Fatal(err)
	}
	w.src.rounds <- []Event{at(Event{Kind: Lost, Lost: 7})}
	h := w.tab.Header()
	w.eventually("told that it could not be read", func() bool { return logged.Load() >= 2 })
	if atomic.LoadUint64(&h.StaleSinceNs) == 0 || atomic.LoadUint64(&h.Resyncs) != 0 {
		t.Error("the table counts as repaired after a comparison that failed")
	}
	if err := os.RemoveAll(stat); err != nil {
		t.Fatal(err)
	}
	w.proc(60, 60, 1, 'S', 30, "born unseen")
	w.eventually("resync", func() bool { return atomic.LoadUint64(&h.Resyncs) == 1 && w.has(60) })
}

// A blind spot is repaired like a loss, and nothing is added to the count.
func TestFollowerRepairsBlindSpot(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.proc(60, 60, 1, 'S', 30, "born unseen")
	w.src.rounds <- []Event{at(Event{Kind: Blind})}
	h := w.tab.Header()
	w.eventually("resync", func() bool { return atomic.LoadUint64(&h.Resyncs) == 1 && w.has(60) })
	if gaps, lost := atomic.LoadUint64(&h.Gaps), atomic.LoadUint64(&h.Lost); gaps != 0 || lost != 0 {
		t.Errorf("got %d gaps, %d lost; want none", gaps, lost)
	}
}

// An event about a group that nobody told of shows that something was missed.
func TestFollowerRepairsOrphan(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.proc(70, 70, 1, 'S', 30, "untold")
	w.src.rounds <- []Event{at(Event{Kind: Fork, PID: 70, TID: 71})}
	w.eventually("resync", func() bool { return w.has(70) })
}

// What lies in the rings from before the first snapshot: forks and names are
// older than it, exits count.
func TestFollowerStartsWithoutGap(t *testing.T) {
	w := newWorld(t)
	w.proc(40, 40, 1, 'S', 20, "lives")
	early := table.MonotonicNs()
	w.src.queue = []Event{
		{Kind: Fork, PID: 80, TID: 80, PPID: 1, TimeNs: early}, // dead before /proc was read
		{Kind: Comm, PID: 40, TID: 40, Comm: name("older"), TimeNs: early},
		{Kind: Lost, Lost: 3, TimeNs: early},
	}
	w.run()
	if w.has(80) {
		t.Error("80 was born before the snapshot and is not in it, yet in the table")
	}
	if h, _ := w.f.Engine.Task(40); string(h.Name()) != "lives" {
		t.Errorf("name: got %q, want that of the snapshot", h.Name())
	}
	h := w.tab.Header()
	w.eventually("a loss during the start is repaired", func() bool {
		return atomic.LoadUint64(&h.Resyncs) == 1 && atomic.LoadUint64(&h.Lost) == 3
	})
}

// A stop in the middle of the first snapshot publishes nothing: half a table
// would look like a whole one.
func TestFollowerStoppedAtStart(t *testing.T) {
	w := newWorld(t)
	w.f.Ready = func() { t.Error("ready was told of a table that is not whole") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.f.Run(ctx); err != nil {
		t.Errorf("got %v, want nil after a stop", err)
	}
	if got := atomic.LoadUint32(&w.tab.Header().State); got != table.TableStarting {
		t.Errorf("state of the table: got %d, want %d, starting", got, table.TableStarting)
	}
}

// Starts become exact and parents true after a look into /proc.
func TestFollowerVerifiesEstimates(t *testing.T) {
	w := newWorld(t)
	w.run()
	ev := fork(90, 77)
	start := (ev.TimeNs+bootOffset())/1e7 - 1 // one tick before the record
	w.proc(90, 90, 1, 'S', start, "x")
	w.src.rounds <- []Event{ev}
	w.eventually("exact", func() bool {
		h, _ := w.f.Engine.Task(90)
		return h.StartTicks == start && h.PPID == 1 && h.PPIDAtFork == 77 &&
			h.Flags&(table.FlagStartEstimated|table.FlagPPIDEstimated) == 0
	})
}

// A task that nothing tells the end of is found by the sweep.
func TestFollowerSweeps(t *testing.T) {
	const nobody = 4_000_001 // beyond every number of the machine
	w := newWorld(t)
	w.proc(nobody, nobody, 1, 'S', 20, "untold")
	w.run()
	if !w.has(nobody) {
		t.Fatal("the snapshot's task is not in the table")
	}
	w.gone(nobody)
	w.eventually("swept", func() bool { return !w.has(nobody) })
}

// Without the name in the record, it is read from /proc.
func TestFollowerReadsNameAtExec(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.proc(90, 90, 1, 'S', 20, "fresh")
	w.src.rounds <- []Event{fork(90, 1), at(Event{Kind: Exec, PID: 90, TID: 90})}
	w.eventually("named", func() bool {
		h, _ := w.f.Engine.Task(90)
		return string(h.Name()) == "fresh"
	})
}

func TestFollowerPolls(t *testing.T) {
	w := newWorld(t)
	w.src.info.Poll = true
	w.f = NewFollower(w.f.Config)
	w.proc(50, 50, 1, 'S', 20, "goes")
	w.run()
	w.gone(50)
	w.proc(60, 60, 1, 'S', 30, "comes")
	w.eventually("poll", func() bool { return w.has(60) && !w.has(50) })
	if got := atomic.LoadUint64(&w.tab.Header().Resyncs); got != 0 {
		t.Errorf("resyncs: got %d, want 0: a poll is no repair", got)
	}
}

func TestFollowerEndsWithItsSource(t *testing.T) {
	w := newWorld(t)
	w.src.dead = errors.New("ring torn")
	close(w.src.rounds)
	if err := w.f.Run(t.Context()); !errors.Is(err, w.src.dead) {
		t.Errorf("got %v, want the source's error", err)
	}
}

func TestNextTick(t *testing.T) {
	for _, c := range []struct {
		tick   time.Duration
		events int
		want   time.Duration
	}{
		{tickIdle, 1000, tickFlow},
		{tickIdle, 3, 2 * tickFlow},
		{tickFlow, 3, tickFlow},
		{tickFlow, 0, 2 * tickFlow},
		{40 * time.Millisecond, 0, tickIdle},
		{tickIdle, 0, tickIdle},
	} {
		if got := nextTick(c.tick, c.events); got != c.want {
			t.Errorf("after %s with %d events: got %s, want %s", c.tick, c.events, got, c.want)
		}
	}
}

func TestSinceLast(t *testing.T) {
	for _, c := range []struct{ now, last, want uint64 }{
		{5e9, 0, 0}, // no turn yet: not the whole time since boot
		{5e9, 5e9 - 50e6, 50e6},
		{5e9, 6e9, 0},
		{7200e9, 3600e9, busyNsMax}, // stopped for an hour
	} {
		if got := sinceLast(c.now, c.last); got != c.want {
			t.Errorf("at %d after a turn at %d: got %d, want %d", c.now, c.last, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	refuse := errors.New("refused")
	openers := []Opener{
		{"best", func() (Source, error) { return nil, refuse }},
		{"good", func() (Source, error) { return newScript(), nil }},
	}
	src, refused, err := Choose(openers, "")
	if err != nil || src == nil || len(refused) != 1 || refused[0].Name != "best" || !errors.Is(refused[0].Err, refuse) {
		t.Errorf("auto: got %v, %v, %v", src, refused, err)
	}
	if _, _, err := Choose(openers, "best"); !errors.Is(err, ErrNoSource) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("forced: got %v, want the refusal", err)
	}
	if _, _, err := Choose(openers, "worst"); !errors.Is(err, ErrUnknownSource) || !strings.Contains(err.Error(), "best, good") {
		t.Errorf("unknown: got %v, want the known names", err)
	}
}

// life is a process's fork, exec and exit, for steady-state measurements.
type life struct {
	w      *world
	events [3]Event
}

func newLife(w *world) *life {
	w.f.turn()
	l := &life{w: w}
	l.run()
	return l
}

func (l *life) run() {
	pid := uint32(4_000_000) // beyond every number of the machine: gone as soon as it has exited
	now := table.MonotonicNs()
	l.events = [3]Event{
		{Kind: Fork, PID: pid, TID: pid, PPID: 1, PTID: 1, TimeNs: now},
		{Kind: Exec, PID: pid, TID: pid, Flags: HasComm, TimeNs: now + 1},
		{Kind: Exit, PID: pid, TID: pid, TimeNs: now + 2},
	}
	for i := range l.events {
		l.w.f.apply(&l.events[i])
	}
	l.w.f.Engine.ReapGone(8, now, numberGone)
	l.w.feed.Flush()
}

func TestApplyAllocs(t *testing.T) {
	l := newLife(newWorld(t))
	if got := testing.AllocsPerRun(500, l.run); got != 0 {
		t.Errorf("apply and publish fork, exec, exit: got %v allocations, want 0", got)
	}
}

func BenchmarkApply(b *testing.B) {
	l := newLife(newWorld(b))
	for b.Loop() {
		l.run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(3*b.N), "ns/event")
}
