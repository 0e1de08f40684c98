package serve

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/live"
)

func TestSeesAll(t *testing.T) {
	group := policy{ownerUID: 100, gid: 50, hasGroup: true}
	for _, tt := range []struct {
		name   string
		policy policy
		peer   Peer
		want   bool
	}{
		{"root", group, Peer{UID: 0, GID: 1}, true},
		{"the daemon's user", group, Peer{UID: 100, GID: 1}, true},
		{"another user", group, Peer{UID: 101, GID: 100, Groups: []uint32{1, 2}}, false},
		{"primary group", group, Peer{UID: 101, GID: 50}, true},
		{"supplementary group", group, Peer{UID: 101, GID: 1, Groups: []uint32{7, 50}}, true},
		{"no such group, gid 0", policy{ownerUID: 100}, Peer{UID: 101, GID: 0, Groups: []uint32{0}}, false},
	} {
		if got := tt.policy.seesAll(&tt.peer); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestNewPolicy(t *testing.T) {
	for _, tt := range []struct {
		group string
		want  policy
	}{
		{"", policy{ownerUID: 7}},
		{"no-such-group-here", policy{ownerUID: 7}},
		{"root", policy{ownerUID: 7, gid: 0, hasGroup: true}},
	} {
		if got, err := newPolicy(7, tt.group); err != nil || got != tt.want {
			t.Errorf("group %q: got %+v, %v, want %+v", tt.group, got, err, tt.want)
		}
	}
}

func TestReadPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	got := peerAtConnect(t, path, func() error { return nil })
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if int(got.PID) != os.Getpid() || int(got.UID) != os.Geteuid() || int(got.GID) != os.Getegid() {
		t.Errorf("got %+v, want pid %d, uid %d, gid %d", got, os.Getpid(), os.Geteuid(), os.Getegid())
	}
	if len(got.Groups) != len(groups) {
		t.Errorf("groups: got %v, want %v", got.Groups, groups)
	}
}

// TestPrivilegedPeerGroups connects as an ordinary user with more groups than
// the first buffer holds.
func TestPrivilegedPeerGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	path := filepath.Join(openDir(t), "s")
	want := make([]uint32, 100)
	for i := range want {
		want[i] = uint32(i + 1000)
	}
	got := peerAtConnect(t, path, func() error { return becomeUser(65534, 65533, want) })
	if got.UID != 65534 || got.GID != 65533 || !slices.Equal(got.Groups, want) {
		t.Errorf("got %+v, want uid 65534, gid 65533, groups 1000 to 1099", got)
	}
}

// TestPrivilegedUsers asks a server as real users, member of its group or not.
func TestPrivilegedUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	s, err := Listen(Config{
		Path:   filepath.Join(openDir(t), "kpidd.sock"),
		Feed:   live.NewFeed(8),
		Status: func(dst []byte) []byte { return append(dst, `{}`...) },
		Hello:  func() Hello { return Hello{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.listener.policy.gid, s.listener.policy.hasGroup = 4242, true
	go s.Serve()
	defer s.Shutdown(t.Context())
	for _, tt := range []struct {
		name   string
		gid    uint32
		groups []uint32
		target string
		want   int
	}{
		{"status", 65534, nil, "/v1/status", 200},
		{"events", 65534, []uint32{5}, "/v1/events", 403},
		{"events, primary group", 4242, nil, "/v1/events", 200},
		{"events, supplementary group", 65534, []uint32{5, 4242}, "/v1/events", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := connectAs(t, s.cfg.Path, func() error { return becomeUser(65534, tt.gid, tt.groups) })
			if _, err := c.Write([]byte(get(tt.target))); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.want {
				t.Errorf("got %d, want %d", resp.StatusCode, tt.want)
			}
		})
	}
}

// openDir returns a directory that every user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kpidd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// peerAtConnect returns what readPeer says of a thread that has connected to
// path after become.
func peerAtConnect(t *testing.T, path string, become func() error) Peer {
	t.Helper()
	l, _, err := bindSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connectAs(t, path, become)
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := readPeer(c)
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

// connectAs connects on a thread that ends afterwards, with whatever become has
// made of it.
func connectAs(t *testing.T, path string, become func() error) net.Conn {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- errors.Join(become(), unix.Connect(fd, &unix.SockaddrUnix{Name: path}))
	}()
	if err := <-result; err != nil {
		t.Fatalf("connect: %v", err)
	}
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
