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
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/live"
)

// testServer is a server on a real socket, whose peers are what the test says.
type testServer struct {
	*Server
	t    *testing.T
	feed *live.Feed
	uid  atomic.Uint32 // of the peers to come; 0 is root
}

const daemonUID = 1234

// startServer serves on a socket of its own until the test ends. configure is
// called before Serve.
func startServer(t *testing.T, feedSize int, configure ...func(s *testServer)) *testServer {
	t.Helper()
	feed := live.NewFeed(feedSize)
	s, err := Listen(Config{
		Path:     filepath.Join(t.TempDir(), "kpidd.sock"),
		Group:    "root",
		OwnerUID: daemonUID,
		Feed:     feed,
		Status:   func(dst []byte) []byte { return append(dst, `{"version":"test"}`...) },
		Hello:    func() Hello { return Hello{BootID: "boot", Source: "perf", Version: "test"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ts := &testServer{Server: s, t: t, feed: feed}
	s.listener.peer = func(*net.UnixConn) (Peer, error) {
		uid := ts.uid.Load()
		return Peer{PID: 1, UID: uid, GID: uid}, nil
	}
	for _, f := range configure {
		f(ts)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
	})
	return ts
}

func (s *testServer) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("unix", s.cfg.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// roundTrip sends raw bytes on a connection of its own and reads one answer.
func (s *testServer) roundTrip(raw string) *http.Response {
	s.t.Helper()
	c := s.dial()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, raw); err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatalf("answer to %.60q: %v", raw, err)
	}
	return resp
}

// errorOf returns the reason in the JSON body of an error.
func errorOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type: got %q, want application/json", got)
	}
	var body errorBody
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatalf("body of the error: %v", err)
	}
	return body.Error
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
	}
}

func get(target string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: kpidd\r\n\r\n"
}

func TestStatus(t *testing.T) {
	s := startServer(t, 8)
	for _, uid := range []uint32{0, daemonUID, 65534} {
		s.uid.Store(uid)
		resp := s.roundTrip(get("/v1/status"))
		body, err := io.ReadAll(io.LimitReader(resp.Body, resp.ContentLength))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(body), "{\"version\":\"test\"}\n"; resp.StatusCode != 200 || got != want {
			t.Errorf("uid %d: got %d %q, want 200 %q", uid, resp.StatusCode, got, want)
		}
	}
	st := s.Stats()
	if st.Requests != 3 {
		t.Errorf("Requests: got %d, want 3", st.Requests)
	}
	if want := uint64(3 * len("HTTP/1.1 200 OK\r\n")); st.SentBytes < want {
		t.Errorf("SentBytes: got %d, want at least %d", st.SentBytes, want)
	}
}

func TestRefusedRequests(t *testing.T) {
	s := startServer(t, 8)
	for _, tt := range []struct {
		name, raw string
		status    int
		reason    string // part of it
		allow     string
	}{
		{"unknown route", get("/v1/nothing"), 404, "no such route", ""},
		{"root", get("/"), 404, "no such route", ""},
		{"wrong method", "DELETE /v1/status HTTP/1.1\r\nHost: k\r\n\r\n", 405, "DELETE", "GET, HEAD"},
		{"post of events", "POST /v1/events HTTP/1.1\r\nHost: k\r\nContent-Length: 0\r\n\r\n", 405, "GET, HEAD", "GET, HEAD"},
		{"body too large", "POST /v1/status HTTP/1.1\r\nHost: k\r\nContent-Length: 65537\r\n\r\n", 413, "65536 bytes", ""},
		{"events with a body", "GET /v1/events HTTP/1.1\r\nHost: k\r\nContent-Length: 2\r\n\r\n{}", 400, "body", ""},
		{"events, chunked body", "GET /v1/events HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "body", ""},
		{"bad since", get("/v1/events?since=-1"), 400, "since", ""},
		{"bad type", get("/v1/events?types=fork,spoon"), 400, "spoon", ""},
		{"no type", get("/v1/events?types="), 400, "types", ""},
		{"bad threads", get("/v1/events?threads=maybe"), 400, "threads", ""},
		{"unknown parameter", get("/v1/events?sicne=1"), 400, "sicne", ""},
		{"twice", get("/v1/events?since=1&since=2"), 400, "2 times", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := s.roundTrip(tt.raw)
			if resp.StatusCode != tt.status {
				t.Errorf("status: got %d, want %d", resp.StatusCode, tt.status)
			}
			if got := errorOf(t, resp); !strings.Contains(got, tt.reason) {
				t.Errorf("reason: got %q, want it to name %q", got, tt.reason)
			}
			if got := resp.Header.Get("Allow"); got != tt.allow {
				t.Errorf("Allow: got %q, want %q", got, tt.allow)
			}
		})
	}
}

func TestGarbage(t *testing.T) {
	s := startServer(t, 8)
	for _, tt := range []struct {
		name, raw string
		status    int
	}{
		{"no HTTP", "\x16\x03\x01\x02\x00garbage\r\n\r\n", 400},
		{"zeros", strings.Repeat("\x00", 100) + "\r\n\r\n", 400},
		{"no host", "GET /v1/status HTTP/1.1\r\n\r\n", 400},
		{"bad header", "GET /v1/status HTTP/1.1\r\nHost: k\r\nno colon\r\n\r\n", 400},
		{"two lengths", "GET /v1/status HTTP/1.1\r\nHost: k\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
		{"version", "GET /v1/status HTTP/9.9\r\nHost: k\r\n\r\n", 505},
		{"large header", "GET /v1/status HTTP/1.1\r\nHost: k\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", 431},
		{"dots", get("/v1/../../etc/passwd"), 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := s.roundTrip(tt.raw)
			for hops := 0; resp.StatusCode/100 == 3 && hops < 3; hops++ { // the mux cleans paths
				resp = s.roundTrip(get(resp.Header.Get("Location")))
			}
			if resp.StatusCode != tt.status {
				t.Errorf("got %d, want %d", resp.StatusCode, tt.status)
			}
		})
	}
	if resp := s.roundTrip(get("/v1/status")); resp.StatusCode != 200 {
		t.Errorf("afterwards: got %d, want 200", resp.StatusCode)
	}
}

func TestHandle(t *testing.T) {
	s := startServer(t, 8, func(s *testServer) {
		s.Handle("POST /v1/things/{id}", Privileged("things"), func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				WriteError(w, http.StatusRequestEntityTooLarge, err.Error())
				return
			}
			WriteJSON(w, http.StatusOK, fmt.Appendf(nil, `{"id":%q,"bytes":%d,"uid":%d}`, r.PathValue("id"), len(body), PeerOf(r.Context()).UID))
		})
		s.Handle("GET /v1/panic", Everybody, func(http.ResponseWriter, *http.Request) { panic("test") })
	})
	chunked := func(n int) string {
		return fmt.Sprintf("POST /v1/things/a%%20b HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("x", n))
	}
	s.uid.Store(daemonUID)
	resp := s.roundTrip(chunked(bodyMaxBytes))
	var got struct {
		ID         string
		Bytes, UID int
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.ID != "a b" || got.Bytes != bodyMaxBytes || got.UID != daemonUID {
		t.Errorf("got %+v, want id \"a b\", bytes %d, uid %d", got, bodyMaxBytes, daemonUID)
	}
	if resp := s.roundTrip(chunked(bodyMaxBytes + 1)); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("one byte more: got %d, want %d", resp.StatusCode, http.StatusRequestEntityTooLarge)
	}
	s.uid.Store(65534)
	resp = s.roundTrip(chunked(1))
	if got, want := errorOf(t, resp), "things need root or group root"; resp.StatusCode != 403 || got != want {
		t.Errorf("another user: got %d %q, want 403 %q", resp.StatusCode, got, want)
	}

	c := s.dial()
	io.WriteString(c, get("/v1/panic"))
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("handler that panics: got %d bytes, %v, want the connection closed", n, err)
	}
	if resp := s.roundTrip(get("/v1/status")); resp.StatusCode != 200 {
		t.Errorf("after a panic: got %d, want 200", resp.StatusCode)
	}
}

// TestConnectionBounds also shows that users who may not see all cannot keep
// root out.
func TestConnectionBounds(t *testing.T) {
	s := startServer(t, 8)
	refused := func(c net.Conn) bool {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("read the refusal: %v", err)
		}
		return resp.StatusCode == 503 && errorOf(t, resp) == "too many connections"
	}
	fill := func(want int) {
		t.Helper()
		for s.Stats().Connections < want {
			before := s.Stats().Connections
			s.dial()
			eventually(t, "accept", func() bool { return s.Stats().Connections > before })
		}
	}

	s.uid.Store(65534)
	fill(connsOthersMax)
	if !refused(s.dial()) {
		t.Errorf("others: connection %d is not refused", connsOthersMax+1)
	}
	s.uid.Store(0)
	fill(connsMax)
	if !refused(s.dial()) {
		t.Errorf("root: connection %d is not refused", connsMax+1)
	}
	if got := s.Stats().RefusedConnections; got != 2 {
		t.Errorf("RefusedConnections: got %d, want 2", got)
	}
}

// TestIdleConnections opens connections and leaves them: neither goroutines nor
// memory grow beyond what the bound allows.
func TestIdleConnections(t *testing.T) {
	const dialled, bytesPerConn = 1000, 32 << 10
	s := startServer(t, 8)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	for range dialled {
		s.dial()
	}
	eventually(t, "refusal of the others", func() bool {
		return s.Stats().RefusedConnections == dialled-connsMax
	})
	if got := s.Stats().Connections; got != connsMax {
		t.Errorf("Connections: got %d, want %d", got, connsMax)
	}
	if got := runtime.NumGoroutine() - goroutines; got > 2*connsMax {
		t.Errorf("got %d more goroutines, want at most %d", got, 2*connsMax)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	if grown > connsMax*bytesPerConn {
		t.Errorf("got %d bytes more, want at most %d", grown, connsMax*bytesPerConn)
	}
}

// TestConnectionsAreGivenBack checks the count after many that have ended.
func TestConnectionsAreGivenBack(t *testing.T) {
	s := startServer(t, 8)
	for range 2 * connsMax {
		resp := s.roundTrip("GET /v1/status HTTP/1.1\r\nHost: k\r\nConnection: close\r\n\r\n")
		if resp.StatusCode != 200 {
			t.Fatalf("got %d, want 200", resp.StatusCode)
		}
	}
	eventually(t, "no open connection", func() bool { return s.Stats().Connections == 0 })
}

// TestCloseTwice closes a connection as often as the HTTP server may.
func TestCloseTwice(t *testing.T) {
	s := startServer(t, 8)
	s.dial()
	eventually(t, "accept", func() bool { return s.Stats().Connections == 1 })
	c := &conn{UnixConn: s.dial().(*net.UnixConn), listener: s.listener}
	eventually(t, "accept", func() bool { return s.Stats().Connections == 2 })
	c.Close() // gives back one, and the server's end of it another
	c.Close()
	eventually(t, "end of the connection", func() bool { return s.Stats().Connections == 0 })
	s.listener.open.Add(1) // c was never accepted
}

func TestPeerUnknown(t *testing.T) {
	s := startServer(t, 8, func(s *testServer) {
		s.listener.peer = func(*net.UnixConn) (Peer, error) { return Peer{}, errors.New("test") }
	})
	c := s.dial()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %d bytes, %v, want the connection closed", n, err)
	}
	if got := s.Stats(); got.RefusedConnections != 1 || got.Connections != 0 {
		t.Errorf("got %+v, want one refused connection and none open", got)
	}
}

func TestShutdownWithoutServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kpidd.sock")
	s, err := Listen(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := s.Serve(); err != nil {
		t.Errorf("Serve afterwards: got %v, want nil", err)
	}
}

func TestRefusalLength(t *testing.T) {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(refusal)), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(refusal, "\r\n\r\n")
	if resp.ContentLength != int64(len(body)) {
		t.Errorf("Content-Length: got %d, want %d", resp.ContentLength, len(body))
	}
}

func ExampleListen() {
	dir, err := os.MkdirTemp("", "kpidd")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server, err := Listen(Config{
		Path:   filepath.Join(dir, "kpidd.sock"),
		Feed:   live.NewFeed(live.FeedSize),
		Status: func(dst []byte) []byte { return append(dst, `{"processes":3}`...) },
		Hello:  func() Hello { return Hello{} },
	})
	if err != nil {
		panic(err)
	}
	go server.Serve()
	defer server.Shutdown(context.Background())

	client, err := Dial(context.Background(), filepath.Join(dir, "kpidd.sock"))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	status, err := client.Status(context.Background())
	fmt.Println(string(status), err)
	// Output: {"processes":3} <nil>
}
