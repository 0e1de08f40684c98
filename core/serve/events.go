package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/table"
)

const (
	// streamsMax bounds the open event streams.
	streamsMax = 64
	// batchRecords is how many records a stream takes from the feed at once.
	batchRecords = 128
	// batchBytes is about what a stream gathers before it writes.
	batchBytes = 16 << 10
)

// Hello is what a stream tells of the daemon in its first record.
type Hello struct {
	BootID  string `json:"boot_id"`
	Source  string `json:"source"`
	Version string `json:"version"`
}

// helloRecord is the first line of a stream.
type helloRecord struct {
	Type string `json:"type"`
	Hello
	Seq uint64 `json:"seq"` // records after this one follow
}

// eventsQuery is a parsed query of /v1/events.
type eventsQuery struct {
	filter
	since  uint64
	resume bool // since is given
}

// filter selects the records of a stream.
type filter struct {
	types   uint32 // bit live.RecordType
	threads bool   // also threads that are no group leaders
}

const allTypes = 1<<live.RecFork | 1<<live.RecExec | 1<<live.RecExit | 1<<live.RecComm

// alwaysTypes tell about the stream itself and are never left out.
const alwaysTypes = 1<<live.RecGap | 1<<live.RecResync

func (f filter) wants(r *live.Record) bool {
	if (f.types|alwaysTypes)>>r.Type&1 == 0 {
		return false
	}
	return f.threads || r.TID == r.PID
}

var recordTypes = map[string]live.RecordType{
	"fork": live.RecFork, "exec": live.RecExec, "exit": live.RecExit, "comm": live.RecComm,
}

func parseEventsQuery(values url.Values) (eventsQuery, error) {
	q := eventsQuery{filter: filter{types: allTypes}}
	for key, v := range values {
		if len(v) != 1 {
			return q, fmt.Errorf("parameter %q is given %d times", key, len(v))
		}
		var err error
		switch key {
		case "since":
			q.resume = true
			q.since, err = strconv.ParseUint(v[0], 10, 64)
		case "types":
			q.types, err = parseTypes(v[0])
		case "threads":
			q.threads, err = strconv.ParseBool(v[0])
		default:
			err = errors.New("unknown; there are since, types, threads")
		}
		if err != nil {
			return q, fmt.Errorf("parameter %q: %w", key, err)
		}
	}
	return q, nil
}

func parseTypes(list string) (types uint32, err error) {
	for name := range strings.SplitSeq(list, ",") {
		t, ok := recordTypes[name]
		if !ok {
			return 0, fmt.Errorf("unknown type %q; there are fork, exec, exit, comm", name)
		}
		types |= 1 << t
	}
	return types, nil
}

// events answers /v1/events.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	q, err := parseEventsQuery(r.URL.Query())
	if err != nil {
		WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.ContentLength != 0 {
		WriteError(w, http.StatusBadRequest, "no body is expected")
		return
	}
	select {
	case s.streamSlots <- struct{}{}:
		defer func() { <-s.streamSlots }()
	default:
		WriteError(w, http.StatusServiceUnavailable, fmt.Sprintf("too many event streams; at most %d are served", streamsMax))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	t := s.newStream(w, r, q)
	defer s.streams.Delete(t.id)
	if err := t.run(); errors.Is(err, os.ErrDeadlineExceeded) {
		s.cut.Inc()
	}
}

// stream sends the feed's records to one client. It belongs to the goroutine of
// its request; seq and missed are atomic, so that Server.Stats can read them.
// The feed's writer never waits for it: the stream reads from the feed's ring,
// and when its client is so slow that the ring has gone round, a gap record
// takes the place of what was overwritten.
type stream struct {
	id     uint64
	server *Server
	w      http.ResponseWriter
	rc     *http.ResponseController
	client context.Context // ends when the client is gone
	peer   Peer
	filter filter

	seq    atomic.Uint64 // place in the feed
	missed atomic.Uint64

	batch [batchRecords]live.Record
	out   []byte // not yet written
}

// newStream registers a stream that starts where q says, its first records in
// out already.
func (s *Server) newStream(w http.ResponseWriter, r *http.Request, q eventsQuery) *stream {
	t := &stream{
		id:     s.streamID.Add(1),
		server: s,
		w:      w,
		rc:     http.NewResponseController(w),
		client: r.Context(),
		peer:   PeerOf(r.Context()),
		filter: q.filter,
		out:    make([]byte, 0, batchBytes+batchRecords*recordBytesMax),
	}
	last := s.cfg.Feed.Last()
	seq := last
	if q.resume {
		seq = min(q.since, last)
	}
	t.seq.Store(seq)
	t.appendHello(seq)
	if q.since > last {
		// The place is one of another life of the daemon: what has happened
		// since is not known.
		t.appendGap(seq, 0)
	}
	s.streams.Store(t.id, t)
	return t
}

func (t *stream) appendHello(seq uint64) {
	line, err := json.Marshal(helloRecord{Type: "hello", Hello: t.server.cfg.Hello(), Seq: seq})
	if err != nil {
		panic("serve: a hello that cannot be marshalled: " + err.Error())
	}
	t.out = append(append(t.out, line...), '\n')
}

// appendGap tells of lost records up to seq, 0 for an unknown number.
func (t *stream) appendGap(seq, lost uint64) {
	gap := live.GapRecord(table.MonotonicNs(), lost)
	gap.Seq = seq
	t.out = appendRecord(t.out, &gap)
}

// run sends until the client is gone, the feed is closed or the server stops.
// The last two come after everything published so far.
func (t *stream) run() error {
	ctx, cancel := context.WithCancel(t.client)
	defer cancel()
	defer context.AfterFunc(t.server.stopping, cancel)()
	feed := t.server.cfg.Feed
	end := uint64(math.MaxUint64)
	for t.seq.Load() < end {
		if err := t.client.Err(); err != nil {
			return err
		}
		drained := t.take(feed)
		if drained || len(t.out) >= batchBytes {
			if err := t.write(); err != nil {
				return err
			}
		}
		if drained {
			if err := feed.Wait(ctx, t.seq.Load()); errors.Is(err, live.ErrFeedClosed) {
				return nil
			}
		}
		if end == math.MaxUint64 && t.server.stopping.Err() != nil {
			end = feed.Last()
		}
	}
	return t.write()
}

// take moves the next records of the feed into out and tells whether they were
// the last.
func (t *stream) take(feed *live.Feed) (drained bool) {
	seq := t.seq.Load()
	n, missed := feed.Next(seq, t.batch[:])
	if missed > 0 {
		t.missed.Add(missed)
		t.server.missed.Add(int64(missed))
		t.appendGap(seq+missed, missed)
	}
	for i := range t.batch[:n] {
		if r := &t.batch[i]; t.filter.wants(r) {
			t.out = appendRecord(t.out, r)
		}
	}
	t.seq.Store(seq + missed + uint64(n))
	return n == 0 && missed == 0
}

// write sends out, if there is anything, and waits until the client has read
// enough.
func (t *stream) write() error {
	if len(t.out) == 0 {
		return nil
	}
	if err := t.rc.SetWriteDeadline(time.Now().Add(t.server.writeTimeout)); err != nil {
		return err
	}
	if _, err := t.w.Write(t.out); err != nil {
		return err
	}
	t.out = t.out[:0]
	return t.rc.Flush()
}

func (t *stream) stats() StreamStats {
	return StreamStats{
		PID:    t.peer.PID,
		UID:    t.peer.UID,
		Seq:    t.seq.Load(),
		Missed: t.missed.Load(),
	}
}
