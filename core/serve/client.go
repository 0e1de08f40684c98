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
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors of a Client, for errors.Is. An error of the connection keeps its errno.
var (
	// ErrNoDaemon: nobody listens at the path.
	ErrNoDaemon = errors.New("no daemon is running")
	// ErrForeign: who listens is neither root nor the caller's own user, and
	// could answer anything.
	ErrForeign = errors.New("the daemon is somebody else's")
	// ErrPermission: the socket cannot be reached, or the daemon refuses the
	// user.
	ErrPermission = errors.New("permission denied")
)

const (
	answerMaxBytes = 16 << 20 // of a whole JSON answer
	lineMaxBytes   = 1 << 20  // of one record of a stream
)

// Client asks the daemon that listens on a socket. Make one with Dial; it is
// safe for use by many goroutines.
type Client struct {
	path  string
	http  http.Client
	first chan net.Conn // the connection of Dial, until a request takes it
}

// Dial returns a client of the daemon at path after it has connected once; the
// connection serves the first request.
func Dial(ctx context.Context, path string) (*Client, error) {
	first, err := connect(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Client{path: path, first: make(chan net.Conn, 1)}
	c.first <- first
	c.http.Transport = &http.Transport{DialContext: c.dial, DisableCompression: true}
	return c, nil
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case first := <-c.first:
		return first, nil
	default:
		return connect(ctx, c.path)
	}
}

func connect(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, connectError(err)
	}
	if err := checkDaemon(c.(*net.UnixConn), uint32(os.Geteuid())); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// checkDaemon refuses a daemon that belongs to neither root nor user uid.
func checkDaemon(c *net.UnixConn, uid uint32) error {
	daemon, err := readPeer(c)
	if err != nil {
		return err
	}
	if daemon.UID != 0 && daemon.UID != uid {
		return fmt.Errorf("%w (uid %d); only root's and your own are asked", ErrForeign, daemon.UID)
	}
	return nil
}

// connectError tells apart why there is no connection.
func connectError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrNoDaemon, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrPermission, err)
	}
	return err
}

// Close drops the idle connections. Open streams go on until they are closed.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	select {
	case first := <-c.first:
		first.Close()
	default:
	}
}

// Status returns the JSON object of /v1/status.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	body, err := c.get(ctx, "/v1/status")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var answer json.RawMessage
	if err := json.NewDecoder(io.LimitReader(body, answerMaxBytes)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read status from %s: %w", c.path, err)
	}
	return answer, nil
}

// EventsOptions select the records of a stream.
type EventsOptions struct {
	Since   *uint64  // records after this Seq; nil: those to come
	Types   []string // fork, exec, exit, comm; none means all
	Threads bool     // also threads that are no group leaders
}

func (o *EventsOptions) query() string {
	v := url.Values{}
	if o.Since != nil {
		v.Set("since", strconv.FormatUint(*o.Since, 10))
	}
	if len(o.Types) > 0 {
		v.Set("types", strings.Join(o.Types, ","))
	}
	if o.Threads {
		v.Set("threads", "1")
	}
	return v.Encode()
}

// Events opens the stream of /v1/events. It ends with ctx.
func (c *Client) Events(ctx context.Context, o EventsOptions) (*EventStream, error) {
	body, err := c.get(ctx, "/v1/events?"+o.query())
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, lineMaxBytes)
	return &EventStream{body: body, lines: lines}, nil
}

// EventStream is an open stream of records. It belongs to one goroutine; only
// Close may be called by another.
type EventStream struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

// Next waits for the next record and returns it as a JSON object, without a
// newline; it is valid until the next call. The first is of type hello. io.EOF
// tells that the daemon has ended the stream.
func (s *EventStream) Next() (json.RawMessage, error) {
	if s.lines.Scan() {
		return s.lines.Bytes(), nil
	}
	if err := s.lines.Err(); err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return nil, io.EOF
}

// Close ends the stream.
func (s *EventStream) Close() error { return s.body.Close() }

// get returns the body of a successful answer.
func (c *Client) get(ctx context.Context, route string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kpidd"+route, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error // names the URL, which says nothing here
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("ask %s: %w", c.path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, fmt.Errorf("ask %s: %w", c.path, answerError(resp))
}

// answerError returns the error that an answer other than 200 tells.
func answerError(resp *http.Response) error {
	body := errorBody{Error: resp.Status}
	// A body that is no JSON leaves the status to speak.
	_ = json.NewDecoder(io.LimitReader(resp.Body, answerMaxBytes)).Decode(&body)
	if resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: %s", ErrPermission, body.Error)
	}
	return errors.New(body.Error)
}
