package table

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func mkfifo(name string) error { return syscall.Mkfifo(name, 0o600) }

func TestHoldTwice(t *testing.T) {
	path := filepath.Join(shmTestDir(t), "run")
	old := syscall.Umask(0o077)
	dir, err := Hold(path)
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Hold(path)
	if !errors.Is(err, ErrBusy) {
		t.Fatalf("hold again: got %v, want ErrBusy", err)
	}
	for _, part := range []string{path, fmt.Sprintf("pid %d)", os.Getpid()), "--runtime-dir"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error: got %q, want %q in it", err, part)
		}
	}
	info, err := os.Stat(path)
	wantMode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		wantMode = 0o755 // whatever the umask: others read
	}
	if err != nil || info.Mode().Perm() != wantMode {
		t.Errorf("mode: got %v, %v; want %v", info.Mode().Perm(), err, wantMode)
	}
	if err := dir.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Hold(path)
	if err != nil {
		t.Fatalf("hold after release: %v", err)
	}
	again.Release()
}

// soon fails t if do hangs, as opening a FIFO does.
func soon(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("it hangs")
	}
}

func TestHoldRefuses(t *testing.T) {
	base := shmTestDir(t)
	for name, make := range map[string]func(path string) error{
		"a file":            func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a FIFO":            mkfifo,
		"a symlink":         func(path string) error { return os.Symlink(base, path) },
		"a dangling link":   func(path string) error { return os.Symlink("/nowhere/at/all", path) },
		"writable by group": func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o770)) },
		"writable by all":   func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o1777)) },
		"a lock that is a FIFO": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), mkfifo(filepath.Join(path, lockName)))
		},
		"a lock that is a symlink": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Symlink("/nowhere/at/all", filepath.Join(path, lockName)))
		},
		"a lock that is a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, lockName), 0o700) },
		"nowhere":                    func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
			if name == "nowhere" {
				path = filepath.Join(base, "no", "such")
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			soon(t, func() {
				dir, err := Hold(path)
				if err == nil {
					dir.Release()
					t.Fatal("got no error")
				}
				if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "--runtime-dir") {
					t.Errorf("got %q, want one line that says what to do", err)
				}
			})
		})
	}
}

// needRoot skips what only root can set up. Nothing outside the test's own
// directories is changed.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
}

func TestForeignOwner(t *testing.T) {
	needRoot(t)
	const nobody = 65534
	base := shmTestDir(t)
	path := filepath.Join(base, "run")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(path); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "65534") {
		t.Errorf("hold a foreign directory: got %v, want ErrForeign with the uid", err)
	}
	if _, err := Open(path); !errors.Is(err, ErrForeign) {
		t.Errorf("open in a foreign directory: got %v, want ErrForeign", err)
	}
	own := shmTestDir(t)
	if _, err := Open(path, own); !errors.Is(err, ErrNoDaemon) || !errors.Is(err, ErrForeign) {
		t.Errorf("open in a foreign directory and in one without a table: got %v, want ErrNoDaemon and why", err)
	}
	living := published(t, own)
	open(t, path, own).Close()
	living.Close()
	if err := os.Chown(path, 0, 0); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(path, lockName)
	if err := errors.Join(os.WriteFile(lock, nil, 0o600), os.Chown(lock, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(path); !errors.Is(err, ErrForeign) {
		t.Errorf("hold with a foreign lock: got %v, want ErrForeign", err)
	}
	os.Remove(lock)

	w := published(t, path)
	if err := os.Chown(w.Path(), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrForeign) {
		t.Errorf("open a foreign table: got %v, want ErrForeign", err)
	}
	next, err := Create(&Dir{Path: path}, testOrigin())
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Publish(); err == nil || !strings.Contains(err.Error(), "no table of ours") {
		t.Errorf("publish over a foreign table: got %v, want a refusal", err)
	}
	want(t, "state of the foreign table", w.Header().State, TableLive)
	next.Close()
	os.Chown(w.Path(), 0, 0)
	if err := os.Chmod(w.Path(), 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrFormat) {
		t.Errorf("open a table that others can write: got %v, want ErrFormat", err)
	}
	w.Close()
}

func TestReaderDirs(t *testing.T) {
	for _, c := range []struct {
		xdg  string
		uid  int
		run  string
		read []string
	}{
		{"", 0, "/run/kpidd", []string{"/run/kpidd", "/dev/shm/kpidd-0"}},
		{"/run", 0, "/run/kpidd", []string{"/run/kpidd"}},
		{"", 7, "/dev/shm/kpidd-7", []string{"/run/kpidd", "/dev/shm/kpidd-7"}},
		{"/run/user/7", 7, "/run/user/7/kpidd", []string{"/run/kpidd", "/run/user/7/kpidd"}},
		{"not/absolute", 7, "/dev/shm/kpidd-7", []string{"/run/kpidd", "/dev/shm/kpidd-7"}},
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.xdg)
		want(t, "default of "+c.xdg, DefaultDir(c.uid), c.run)
		want(t, "readers' of "+c.xdg, strings.Join(ReaderDirs(c.uid), " "), strings.Join(c.read, " "))
	}
}
