package serve

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// leaveSocket makes a socket file on which nobody listens.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestBindSocket(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, path string)
		want    string // part of the error
	}{
		{"nothing there", func(*testing.T, string) {}, ""},
		{"left by a dead daemon", leaveSocket, ""},
		{"left half made", func(t *testing.T, path string) { leaveSocket(t, path+".new") }, ""},
		{"file", func(t *testing.T, path string) { os.WriteFile(path, []byte("mine"), 0o600) }, "not a socket"},
		{"file at the other name", func(t *testing.T, path string) { os.WriteFile(path+".new", nil, 0o600) }, "not a socket"},
		{"directory", func(t *testing.T, path string) { os.Mkdir(path, 0o700) }, "not a socket"},
		{"symlink to a socket", func(t *testing.T, path string) {
			leaveSocket(t, path+".real")
			os.Symlink(path+".real", path)
		}, "not a socket"},
		{"no directory", func(t *testing.T, path string) { os.Remove(filepath.Dir(path)) }, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "s")
			tt.prepare(t, path)
			before, _ := os.Lstat(path)
			old := unix.Umask(0o077)
			l, _, err := bindSocket(path)
			unix.Umask(old)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want an error with %q", err, tt.want)
				}
				if after, _ := os.Lstat(path); before != nil && !os.SameFile(before, after) {
					t.Error("what was there is gone")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != socketMode {
				t.Errorf("mode: got %#o, want %#o", got, socketMode)
			}
			if _, err := os.Lstat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("temporary name: got %v, want it gone", err)
			}
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			c.Close()
		})
	}
}

func TestBindSocketPathTooLong(t *testing.T) {
	path := "/tmp/" + strings.Repeat("x", pathMax)
	_, _, err := bindSocket(path)
	if err == nil || !strings.Contains(err.Error(), "9 bytes too long") {
		t.Errorf("got %v, want an error with the number of bytes", err)
	}
}

func TestRemoveSocketLeavesSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, mine, err := bindSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, successor, err := bindSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := removeSocket(path, mine); err != nil {
		t.Errorf("another's socket: got %v, want nil", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
	for range 2 { // the second time nothing is there
		if err := removeSocket(path, successor); err != nil {
			t.Errorf("own socket: got %v, want nil", err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("own socket: got %v, want it gone", err)
		}
	}
}
