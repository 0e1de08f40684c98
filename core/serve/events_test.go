package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/live"
)

// line is one record of a stream, as a client sees it.
type line struct {
	Type   string  `json:"type"`
	Seq    uint64  `json:"seq"`
	TimeNs uint64  `json:"time_ns"`
	PID    uint32  `json:"pid"`
	TID    uint32  `json:"tid"`
	Lost   *uint64 `json:"lost"`
	BootID string  `json:"boot_id"`
	Source string  `json:"source"`
}

// reader reads the lines of an open stream.
type reader struct {
	t     *testing.T
	conn  net.Conn
	lines *json.Decoder
}

// open starts a stream on a connection of its own and checks its hello.
func (s *testServer) open(query string) (*reader, line) {
	s.t.Helper()
	c := s.dial()
	if _, err := io.WriteString(c, get("/v1/events"+query)); err != nil {
		s.t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "application/x-ndjson" {
		s.t.Fatalf("got %d %q, want 200 application/x-ndjson", resp.StatusCode, got)
	}
	r := &reader{t: s.t, conn: c, lines: json.NewDecoder(resp.Body)}
	hello := r.next()
	if hello.Type != "hello" || hello.BootID != "boot" || hello.Source != "perf" {
		s.t.Fatalf("first record: got %+v, want a hello", hello)
	}
	return r, hello
}

// read returns the next line, or the error that ends the stream.
func (r *reader) read() (l line, err error) {
	r.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	err = r.lines.Decode(&l)
	return l, err
}

func (r *reader) next() line {
	r.t.Helper()
	l, err := r.read()
	if err != nil {
		r.t.Fatalf("read the next record: %v", err)
	}
	return l
}

// publish appends a record of process pid and wakes the streams.
func (s *testServer) publish(t live.RecordType, pid, tid uint32) {
	s.feed.Publish(&live.Record{Type: t, PID: pid, TID: tid, TimeNs: 1})
	s.feed.Flush()
}

func TestParseEventsQuery(t *testing.T) {
	for _, tt := range []struct {
		query string
		want  eventsQuery
	}{
		{"", eventsQuery{filter: filter{types: allTypes}}},
		{"since=0", eventsQuery{filter: filter{types: allTypes}, resume: true}},
		{"since=18446744073709551615", eventsQuery{filter: filter{types: allTypes}, since: 1<<64 - 1, resume: true}},
		{"types=exec", eventsQuery{filter: filter{types: 1 << live.RecExec}}},
		{"types=exit,fork,exit&threads=1", eventsQuery{filter: filter{types: 1<<live.RecExit | 1<<live.RecFork, threads: true}}},
		{"threads=0", eventsQuery{filter: filter{types: allTypes}}},
	} {
		values, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseEventsQuery(values); err != nil || got != tt.want {
			t.Errorf("%q: got %+v, %v, want %+v", tt.query, got, err, tt.want)
		}
	}
}

func FuzzParseEventsQuery(f *testing.F) {
	f.Add("since=1&types=fork,exec,exit,comm&threads=1")
	f.Add("since=&types=,&threads")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := parseEventsQuery(values)
		if err == nil && q.types&^allTypes != 0 {
			t.Errorf("%q: got types %#x, want some of %#x", query, q.types, allTypes)
		}
	})
}

func TestFilterWants(t *testing.T) {
	process := func(rt live.RecordType) *live.Record { return &live.Record{Type: rt, PID: 5, TID: 5} }
	thread := &live.Record{Type: live.RecExit, PID: 5, TID: 6}
	execs := filter{types: 1 << live.RecExec}
	for _, tt := range []struct {
		name string
		f    filter
		r    *live.Record
		want bool
	}{
		{"wanted type", execs, process(live.RecExec), true},
		{"other type", execs, process(live.RecFork), false},
		{"gap", execs, process(live.RecGap), true},
		{"resync", execs, process(live.RecResync), true},
		{"thread", filter{types: allTypes}, thread, false},
		{"thread on request", filter{types: allTypes, threads: true}, thread, true},
		{"type to come", filter{types: allTypes}, process(200), false},
	} {
		if got := tt.f.wants(tt.r); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestEventsLive(t *testing.T) {
	s := startServer(t, 64)
	s.publish(live.RecExec, 1, 1) // before the stream: not told
	r, hello := s.open("")
	if hello.Seq != 1 {
		t.Errorf("hello: got seq %d, want 1", hello.Seq)
	}
	for pid := uint32(2); pid < 10; pid++ {
		s.publish(live.RecFork, pid, pid+1000) // a thread: not told
		s.publish(live.RecFork, pid, pid)
		if got := r.next(); got.PID != pid || got.TID != pid || got.Type != "fork" {
			t.Fatalf("got %+v, want the fork of %d", got, pid)
		}
	}
}

func TestEventsSelect(t *testing.T) {
	s := startServer(t, 64)
	s.publish(live.RecFork, 1, 1)   // 1
	s.publish(live.RecExec, 1, 1)   // 2
	s.publish(live.RecFork, 1, 2)   // 3
	s.publish(live.RecComm, 1, 2)   // 4
	s.publish(live.RecGap, 0, 0)    // 5
	s.publish(live.RecResync, 0, 0) // 6
	s.publish(live.RecExit, 1, 2)   // 7
	s.publish(live.RecExit, 1, 1)   // 8
	for _, tt := range []struct {
		query string
		want  []uint64
	}{
		{"?since=0", []uint64{1, 2, 5, 6, 8}},
		{"?since=0&threads=1", []uint64{1, 2, 3, 4, 5, 6, 7, 8}},
		{"?since=2&threads=true", []uint64{3, 4, 5, 6, 7, 8}},
		{"?since=0&types=exit", []uint64{5, 6, 8}},
		{"?since=0&types=comm,fork&threads=1", []uint64{1, 3, 4, 5, 6}},
		{"?since=7", []uint64{8}},
	} {
		t.Run(tt.query, func(t *testing.T) {
			r, _ := s.open(tt.query)
			var got []uint64
			for range tt.want {
				got = append(got, r.next().Seq)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestEventsOtherLife resumes at a place that this daemon has not reached.
func TestEventsOtherLife(t *testing.T) {
	s := startServer(t, 64)
	s.publish(live.RecFork, 1, 1)
	r, hello := s.open("?since=1000")
	if hello.Seq != 1 {
		t.Errorf("hello: got seq %d, want 1", hello.Seq)
	}
	if got := r.next(); got.Type != "gap" || got.Lost != nil || got.Seq != 1 {
		t.Errorf("got %+v, want a gap of unknown size at 1", got)
	}
	s.publish(live.RecFork, 2, 2)
	if got := r.next(); got.Seq != 2 {
		t.Errorf("got %+v, want record 2", got)
	}
}

func TestEventsSinceOverwritten(t *testing.T) {
	s := startServer(t, 8)
	for pid := range uint32(20) {
		s.publish(live.RecFork, pid+1, pid+1)
	}
	r, _ := s.open("?since=2")
	if got := r.next(); got.Type != "gap" || got.Lost == nil || *got.Lost != 10 || got.Seq != 12 || got.TimeNs == 0 {
		t.Errorf("got %+v, want a gap of 10 up to 12", got)
	}
	for seq := uint64(13); seq <= 20; seq++ {
		if got := r.next(); got.Seq != seq {
			t.Errorf("got %+v, want record %d", got, seq)
		}
	}
}

// TestEventsSlowClient publishes far more than the socket's buffers and the
// ring hold while the client does not read. What it then reads adds up.
func TestEventsSlowClient(t *testing.T) {
	const records = 60_000
	s := startServer(t, 64)
	r, _ := s.open("")
	start := time.Now()
	for i := range uint32(records) {
		s.publish(live.RecFork, i+1, i+1)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the slow client held the writer up: %v for %d records", took, records)
	}
	var received, lost, seq uint64
	for seq < records {
		l := r.next()
		if l.Type == "gap" {
			lost += *l.Lost
			seq += *l.Lost
		} else {
			received++
			seq++
		}
		if l.Seq != seq {
			t.Fatalf("got %+v, want seq %d", l, seq)
		}
	}
	if lost == 0 || received == 0 {
		t.Errorf("received %d, lost %d, want some of both", received, lost)
	}
	st := s.Stats()
	if st.MissedRecords != lost {
		t.Errorf("MissedRecords: got %d, want %d", st.MissedRecords, lost)
	}
	want := StreamStats{PID: 1, Seq: records, Missed: lost}
	if len(st.Streams) != 1 || st.Streams[0] != want {
		t.Errorf("Streams: got %+v, want one %+v", st.Streams, want)
	}
}

// flood publishes until the test ends or stop is called.
func (s *testServer) flood() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for pid := uint32(1); ; pid++ {
			select {
			case <-done:
				return
			default:
				s.publish(live.RecFork, pid, pid)
				if pid%1000 == 0 { // the server needs a processor too
					time.Sleep(50 * time.Microsecond)
				}
			}
		}
	})
	stop = sync.OnceFunc(func() { close(done); wg.Wait() })
	s.t.Cleanup(stop)
	return stop
}

func TestEventsClientThatNeverReads(t *testing.T) {
	s := startServer(t, 1024, func(s *testServer) { s.writeTimeout = 50 * time.Millisecond })
	s.open("")
	defer s.flood()()
	eventually(t, "end of the stream", func() bool {
		st := s.Stats()
		return st.CutStreams == 1 && len(st.Streams) == 0 && st.Connections == 0
	})
}

func TestEventsClientThatLeaves(t *testing.T) {
	s := startServer(t, 64)
	r, _ := s.open("")
	r.conn.Close()
	eventually(t, "end of the stream", func() bool {
		st := s.Stats()
		return len(st.Streams) == 0 && st.Connections == 0
	})
	if got := s.Stats().CutStreams; got != 0 {
		t.Errorf("CutStreams: got %d, want 0", got)
	}
}

func TestEventsForbidden(t *testing.T) {
	s := startServer(t, 8)
	s.uid.Store(65534)
	resp := s.roundTrip(get("/v1/events"))
	if got, want := errorOf(t, resp), "events of other users need root or group root"; resp.StatusCode != 403 || got != want {
		t.Errorf("got %d %q, want 403 %q", resp.StatusCode, got, want)
	}
	s.uid.Store(daemonUID)
	s.open("") // the daemon's own user
}

func TestEventsTooManyStreams(t *testing.T) {
	s := startServer(t, 8)
	var first *reader
	for range streamsMax {
		first, _ = s.open("")
	}
	if got := len(s.Stats().Streams); got != streamsMax {
		t.Errorf("Streams: got %d, want %d", got, streamsMax)
	}
	resp := s.roundTrip(get("/v1/events"))
	if got, want := errorOf(t, resp), fmt.Sprintf("too many event streams; at most %d are served", streamsMax); resp.StatusCode != 503 || got != want {
		t.Errorf("got %d %q, want 503 %q", resp.StatusCode, got, want)
	}
	first.conn.Close()
	eventually(t, "a free place", func() bool { return len(s.Stats().Streams) < streamsMax })
	s.open("")
}

func TestEventsHead(t *testing.T) {
	s := startServer(t, 8)
	resp := s.roundTrip("HEAD /v1/events HTTP/1.1\r\nHost: k\r\n\r\n")
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "application/x-ndjson" {
		t.Errorf("got %d %q, want 200 application/x-ndjson", resp.StatusCode, got)
	}
	if got := len(s.Stats().Streams); got != 0 {
		t.Errorf("Streams: got %d, want 0", got)
	}
}

func TestEventsFeedClosed(t *testing.T) {
	s := startServer(t, 8)
	r, _ := s.open("?since=0")
	s.publish(live.RecFork, 1, 1)
	s.feed.Close()
	if got := r.next(); got.Seq != 1 {
		t.Errorf("got %+v, want record 1", got)
	}
	if l, err := r.read(); !errors.Is(err, io.EOF) {
		t.Errorf("got %+v, %v, want the end of the stream", l, err)
	}
}

// TestShutdownMidStream stops the server under load, once the client has read
// some: it gets everything up to the end, in order, and then a clean end.
func TestShutdownMidStream(t *testing.T) {
	s := startServer(t, 1024)
	r, _ := s.open("")
	stop := s.flood()
	time.AfterFunc(20*time.Millisecond, func() {
		start := time.Now()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Shutdown took %v, want at most 2s", took)
		}
	})
	var seq uint64
	for {
		l, err := r.read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after record %d: %v, want a clean end", seq, err)
		}
		if l.Type == "gap" {
			seq += *l.Lost
		} else {
			seq++
		}
		if l.Seq != seq {
			t.Fatalf("got %+v, want seq %d", l, seq)
		}
	}
	stop()
	if seq == 0 {
		t.Error("no record came before the end")
	}
}

// TestShutdownLastRecords publishes right before the stop.
func TestShutdownLastRecords(t *testing.T) {
	s := startServer(t, 1024)
	r, _ := s.open("")
	for i := range uint32(500) {
		s.feed.Publish(&live.Record{Type: live.RecFork, PID: i + 1, TID: i + 1}) // no Flush
	}
	go s.Shutdown(context.Background())
	for seq := uint64(1); seq <= 500; seq++ {
		if got := r.next(); got.Seq != seq {
			t.Fatalf("got %+v, want record %d", got, seq)
		}
	}
	if l, err := r.read(); !errors.Is(err, io.EOF) {
		t.Errorf("got %+v, %v, want the end of the stream", l, err)
	}
}

func TestShutdownWithBlockedClient(t *testing.T) {
	s := startServer(t, 1024)
	s.open("")
	defer s.flood()()
	eventually(t, "a blocked stream", func() bool { return s.Stats().MissedRecords > 0 || s.feed.Last() > 100_000 })
	start := time.Now()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v, want at most 2s", took)
	}
	eventually(t, "end of the stream", func() bool { return len(s.Stats().Streams) == 0 })
}

// TestStressEvents lets streams come and go while the feed is written.
func TestStressEvents(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	s := startServer(t, 256)
	defer s.flood()()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range rounds {
				if err := s.readSome(50); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "end of the streams", func() bool { return len(s.Stats().Streams) == 0 })
}

// readSome opens a stream through the client, checks the order of n records and
// leaves.
func (s *testServer) readSome(n int) error {
	ctx := s.t.Context()
	client, err := Dial(ctx, s.cfg.Path)
	if err != nil {
		return err
	}
	defer client.Close()
	events, err := client.Events(ctx, EventsOptions{})
	if err != nil {
		return err
	}
	defer events.Close()
	var seq uint64
	for i := range n {
		raw, err := events.Next()
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return err
		}
		switch {
		case i == 0:
			seq = l.Seq
			continue
		case l.Type == "gap":
			seq += *l.Lost
		default:
			seq++
		}
		if l.Seq != seq {
			return fmt.Errorf("got %+v, want seq %d", l, seq)
		}
	}
	return nil
}

func BenchmarkEvents(b *testing.B) {
	const batch = 64
	feed := live.NewFeed(1024)
	s := &Server{cfg: Config{Feed: feed}}
	t := &stream{server: s, filter: filter{types: allTypes}, out: make([]byte, 0, batchBytes+batchRecords*recordBytesMax)}
	r := benchRecord
	var sent uint64
	for b.Loop() {
		for range batch {
			feed.Publish(&r)
		}
		t.take(feed)
		sent += uint64(len(t.out))
		t.out = t.out[:0]
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/record")
	b.ReportMetric(float64(sent)/float64(b.N*batch), "B/record")
}
