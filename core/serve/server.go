package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/kpidd/kpidd/core/live"
)

const (
	headerMaxBytes = 8 << 10
	bodyMaxBytes   = 64 << 10

	headerTimeout = 5 * time.Second
	idleTimeout   = 60 * time.Second
	// transferTimeout bounds the reading of a body and each write: a client
	// that does not read for so long is cut off.
	transferTimeout = 30 * time.Second
	// shutdownTimeout is what streams get to write out what they have read.
	shutdownTimeout = 1500 * time.Millisecond
)

// Config is what a Server needs. Its functions are called by many goroutines at
// once.
type Config struct {
	Path     string                  // the socket
	Group    string                  // its members see all; "" or no such group: nobody does so by group
	OwnerUID uint32                  // the daemon's own user sees all, as root does
	Status   func(dst []byte) []byte // appends the JSON object of /v1/status
	Hello    func() Hello            // opens each event stream
	Feed     *live.Feed              // what /v1/events streams
	ErrorLog *log.Logger             // failed accepts and panics of handlers; nil drops them
}

// Server answers on the socket. Make one with Listen; a Server must not be
// copied. All methods are safe for use by many goroutines, but for Handle,
// whose calls come before Serve.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	http     http.Server
	listener *listener
	socket   os.FileInfo // what Listen has put at cfg.Path

	stopping context.Context // ends with Shutdown
	stop     context.CancelFunc

	streamID    atomic.Uint64
	streams     *xsync.MapOf[uint64, *stream]
	streamSlots chan struct{} // one element for each open stream

	requests *xsync.Counter
	missed   *xsync.Counter // records that streams lost because their client was slow
	cut      *xsync.Counter // streams ended because their client did not read

	writeTimeout time.Duration // transferTimeout, but for tests
}

// Listen opens the socket; it answers once Serve runs. The caller holds the
// lock of the socket's directory, so that what lies at cfg.Path can only be
// the socket of a dead daemon; anything else there is an error and stays.
func Listen(cfg Config) (*Server, error) {
	policy, err := newPolicy(cfg.OwnerUID, cfg.Group)
	if err != nil {
		return nil, err
	}
	socket, info, err := bindSocket(cfg.Path)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg,
		mux: http.NewServeMux(),
		listener: &listener{
			UnixListener: socket,
			policy:       policy,
			peer:         readPeer,
			refused:      xsync.NewCounter(),
			bytes:        xsync.NewCounter(),
		},
		socket:       info,
		streams:      xsync.NewMapOf[uint64, *stream](),
		streamSlots:  make(chan struct{}, streamsMax),
		requests:     xsync.NewCounter(),
		missed:       xsync.NewCounter(),
		cut:          xsync.NewCounter(),
		writeTimeout: transferTimeout,
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.http = http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ConnContext:       withPeer,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMaxBytes,
		ErrorLog:          cmp.Or(cfg.ErrorLog, log.New(io.Discard, "", 0)),
	}
	s.Handle("GET /v1/status", Everybody, s.status)
	s.Handle("GET /v1/events", Privileged("events of other users"), s.events)
	return s, nil
}

// Serve answers until Shutdown, and then returns nil.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.cfg.Path, err)
	}
	return nil
}

// Shutdown removes the socket and ends the server within two seconds, or with
// ctx: streams write out what was published so far, requests under way are
// answered; who is not done by then is cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	removeErr := removeSocket(s.cfg.Path, s.socket)
	s.stop()
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.listener.Close() // Serve may never have run
	if removeErr != nil {
		return fmt.Errorf("remove socket: %w", removeErr)
	}
	return nil
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, s.cfg.Status(nil))
}

// Stats is what a Server has done since Listen. The numbers are read one after
// the other, while the server works.
type Stats struct {
	Connections        int    // open now
	RefusedConnections uint64 // beyond the bounds, or of peers the kernel did not name
	Requests           uint64
	SentBytes          uint64
	MissedRecords      uint64 // what slow stream clients lost
	CutStreams         uint64 // streams ended because their client did not read
	Streams            []StreamStats
}

// StreamStats describes an open event stream.
type StreamStats struct {
	PID    int32  // of the client, when it connected
	UID    uint32 // of the client, when it connected
	Seq    uint64 // the last record that it was given or has missed
	Missed uint64 // records lost because the client was slow
}

// Stats returns the counters, and the open streams, oldest first.
func (s *Server) Stats() Stats {
	st := Stats{
		Connections:        int(s.listener.open.Load()),
		RefusedConnections: uint64(s.listener.refused.Value()),
		Requests:           uint64(s.requests.Value()),
		SentBytes:          uint64(s.listener.bytes.Value()),
		MissedRecords:      uint64(s.missed.Value()),
		CutStreams:         uint64(s.cut.Value()),
	}
	var open []*stream
	s.streams.Range(func(_ uint64, t *stream) bool {
		open = append(open, t)
		return true
	})
	slices.SortFunc(open, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	for _, t := range open {
		st.Streams = append(st.Streams, t.stats())
	}
	return st
}
