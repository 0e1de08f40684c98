package serve

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/live"
)

func TestClient(t *testing.T) {
	s := startServer(t, 64)
	s.publish(live.RecFork, 1, 1)
	s.publish(live.RecFork, 1, 2)
	s.publish(live.RecExec, 1, 1)
	c, err := Dial(t.Context(), s.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		status, err := c.Status(t.Context())
		if got, want := string(status), `{"version":"test"}`; err != nil || got != want {
			t.Fatalf("Status: got %q, %v, want %q", got, err, want)
		}
	}
	if got := s.Stats().Connections; got != 1 {
		t.Errorf("three requests took %d connections, want 1", got)
	}

	since := uint64(0)
	events, err := c.Events(t.Context(), EventsOptions{Since: &since, Types: []string{"fork", "exit"}, Threads: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for _, want := range []line{{Type: "hello"}, {Type: "fork", Seq: 1}, {Type: "fork", Seq: 2}} {
		raw, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		var got line
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if got.Type != want.Type || got.Seq != want.Seq {
			t.Errorf("got %s, want type %q, seq %d", raw, want.Type, want.Seq)
		}
	}
	s.feed.Close()
	if raw, err := events.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("feed closed: got %s, %v, want %v", raw, err, io.EOF)
	}
}

func TestClientErrors(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	leaveSocket(t, dead)
	for _, path := range []string{dead, filepath.Join(dir, "none"), filepath.Join(dir, "no", "dir")} {
		if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNoDaemon) || errors.Is(err, ErrPermission) {
			t.Errorf("%s: got %v, want %v", path, err, ErrNoDaemon)
		}
	}

	s := startServer(t, 8)
	s.uid.Store(65534)
	c, err := Dial(t.Context(), s.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Events(t.Context(), EventsOptions{})
	if want := "ask " + s.cfg.Path + ": permission denied: events of other users need root or group root"; !errors.Is(err, ErrPermission) || err.Error() != want {
		t.Errorf("Events: got %v, want %q", err, want)
	}
	if err := s.Server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("Status of a daemon that has gone: got %v, want %v", err, ErrNoDaemon)
	}
}

// A daemon of another user could answer anything.
func TestClientForeignDaemon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	listened := make(chan error)
	var l net.Listener
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends as another user
		err := becomeUser(65534, 65534, nil)
		if err == nil {
			l, err = net.Listen("unix", path)
		}
		listened <- err
	}()
	if err := <-listened; err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "65534") {
		t.Errorf("got %v, want ErrForeign with the uid", err)
	}
}

func TestClientBadRequest(t *testing.T) {
	s := startServer(t, 8)
	c, err := Dial(t.Context(), s.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Events(t.Context(), EventsOptions{Types: []string{"spoon"}})
	if err == nil || errors.Is(err, ErrPermission) || errors.Is(err, ErrNoDaemon) {
		t.Errorf("got %v, want the daemon's reason", err)
	}
}

func TestConnectError(t *testing.T) {
	for _, tt := range []struct {
		errno unix.Errno
		want  error // nil: neither
	}{
		{unix.ENOENT, ErrNoDaemon}, {unix.ECONNREFUSED, ErrNoDaemon},
		{unix.EACCES, ErrPermission}, {unix.EPERM, ErrPermission},
		{unix.EAGAIN, nil},
	} {
		got := connectError(&net.OpError{Op: "dial", Net: "unix", Err: tt.errno})
		for _, sentinel := range []error{ErrNoDaemon, ErrPermission} {
			if is := errors.Is(got, sentinel); is != (sentinel == tt.want) {
				t.Errorf("%v: got %v, want it to be %v", tt.errno, got, tt.want)
			}
		}
		if !errors.Is(got, tt.errno) {
			t.Errorf("%v: got %v, want it to keep the errno", tt.errno, got)
		}
	}
}

// TestClientUnusedConnection gives back what Dial has opened.
func TestClientUnusedConnection(t *testing.T) {
	s := startServer(t, 8)
	c, err := Dial(t.Context(), s.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "accept", func() bool { return s.Stats().Connections == 1 })
	c.Close()
	eventually(t, "end of the connection", func() bool { return s.Stats().Connections == 0 })
}
