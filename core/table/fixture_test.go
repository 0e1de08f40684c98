package table

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// shmTestDir makes a directory on tmpfs for one test.
func shmTestDir(t testing.TB) string {
	t.Helper()
	if !onTmpfs(shmDir) {
		t.Skip("no tmpfs at", shmDir)
	}
	dir, err := os.MkdirTemp(shmDir, "kpidd-test-")
	if err != nil {
		t.Skip("no directory under", shmDir, err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// diskTestDir makes a directory that is not on tmpfs.
func diskTestDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if onTmpfs(dir) {
		t.Skip("the directory for temporary files is on tmpfs")
	}
	if !onTmpfs(shmDir) {
		t.Skip("no tmpfs at", shmDir)
	}
	return dir
}

// bothDirs runs a test in a directory that holds the table itself and in one
// that holds a symlink to it.
func bothDirs(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("tmpfs", func(t *testing.T) { test(t, shmTestDir(t)) })
	t.Run("disk", func(t *testing.T) { test(t, diskTestDir(t)) })
}

func hold(t testing.TB, path string) *Dir {
	t.Helper()
	dir, err := Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Release() })
	return dir
}

func testOrigin() Origin {
	id, _ := BootID()
	return Origin{BootID: id, PID: uint32(os.Getpid()), StartTicks: 77, Source: "a source of events", Tells: 5, ClockTicks: 100}
}

// create makes an unpublished table, of which the test's end leaves nothing.
func create(t testing.TB, dir *Dir) *Writer {
	t.Helper()
	w, err := Create(dir, testOrigin())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.seg.file.Close()
		os.Remove(w.seg.path)
	})
	return w
}

func published(t testing.TB, path string) *Writer {
	t.Helper()
	w := create(t, hold(t, path))
	if err := w.Publish(); err != nil {
		t.Fatal(err)
	}
	return w
}

func open(t testing.TB, dirs ...string) *Reader {
	t.Helper()
	r, err := Open(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// add puts a task into the table, as the engine does.
func add(t testing.TB, w *Writer, tid, tgid uint32) uint32 {
	t.Helper()
	slot, err := w.NewSlot()
	if err != nil {
		t.Fatal(err)
	}
	h := Hot{TID: tid, TGID: tgid, Gen: tid, PPID: 1, PPIDAtFork: 2}
	if tid != tgid {
		h.PPID, h.PPIDAtFork = 0, 0
	}
	copy(h.Comm[:], fmt.Sprintf("task%d", tid))
	w.Put(slot, &h)
	if err := w.Tree().InsertNew(tid, slot); err != nil {
		t.Fatal(err)
	}
	if tid == tgid {
		w.Tree().SetTag(tid, 0)
	}
	return slot
}

func remove(w *Writer, tid uint32) {
	slot := w.Tree().Delete(tid)
	w.FreeSlot(slot)
}

// files lists what lies in dir, and of this process's tables in /dev/shm.
func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	shm, err := os.ReadDir(shmDir)
	if err != nil {
		return names
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	for _, e := range shm {
		if strings.HasPrefix(filepath.Join(shmDir, e.Name()), shmNames(&st)) {
			names = append(names, e.Name())
		}
	}
	return names
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
