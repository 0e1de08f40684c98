package table

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kpidd/kpidd/generated/radix"
)

func TestRoundTrip(t *testing.T) {
	bothDirs(t, func(t *testing.T, path string) {
		dir := hold(t, path)
		w := create(t, dir)
		if _, err := Open(path); !errors.Is(err, ErrNoDaemon) {
			t.Fatalf("open before Publish: got %v, want ErrNoDaemon", err)
		}
		add(t, w, 1, 1)
		if err := w.Publish(); err != nil {
			t.Fatal(err)
		}
		want(t, "path", w.Path(), filepath.Join(path, TableName))
		r := open(t, filepath.Join(path, "nowhere"), path)
		defer r.Close()
		want(t, "path of the reader", r.Path(), w.Path())
		add(t, w, 10, 10)
		add(t, w, 11, 10)
		add(t, w, 4_000_000, 4_000_000)
		h := r.Header()
		want(t, "state", h.State, TableLive)
		want(t, "source", string(h.Source[:]), "a source of even")
		want(t, "writer", h.WriterPID, uint32(os.Getpid()))
		want(t, "boot id", string(trimNUL(h.BootID[:])), testOrigin().BootID)
		if age, err := r.Fresh(); err != nil || age < 0 || age > heartbeatMax {
			t.Errorf("fresh: got %v, %v; want nil", age, err)
		}
		rec, ok, unstable := r.ByPID(4_000_000)
		if !ok || unstable || rec.TID != 4_000_000 || string(rec.Name()) != "task4000000" {
			t.Errorf("by pid: got %+v, %v, %v", rec, ok, unstable)
		}
		info, err := os.Stat(w.Path())
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("mode: got %v, %v; want 0644", info.Mode(), err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, "state after the end", atomic.LoadUint32(&h.State), TableDead)
		if got := files(t, path); !slices.Equal(got, []string{lockName}) {
			t.Errorf("files after Close: got %q, want the lock alone", got)
		}
	})
}

// A reader keeps what it has mapped over a restart, and sees that it is dead.
func TestRestart(t *testing.T) {
	bothDirs(t, func(t *testing.T, path string) {
		dir := hold(t, path)
		old := create(t, dir)
		add(t, old, 10, 10)
		if err := old.Publish(); err != nil {
			t.Fatal(err)
		}
		r := open(t, path)
		defer r.Close()
		w := create(t, dir) // the old one was killed: no Close
		if _, err := r.Fresh(); err != nil {
			t.Errorf("the old table before the new one is published: got %v, want nil", err)
		}
		if err := w.Publish(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Fresh(); !errors.Is(err, ErrDead) {
			t.Errorf("the old table: got %v, want ErrDead", err)
		}
		if rec, ok, _ := r.ByPID(10); !ok || rec.TID != 10 {
			t.Errorf("task 10 of the old table: got %+v, %v", rec, ok)
		}
		now := open(t, path)
		defer now.Close()
		if now.Header().DaemonGen == r.Header().DaemonGen {
			t.Error("the two have one generation")
		}
		want(t, "leaders of the new table", len(leaders(now)), 0)
		// The end of the old daemon, if it comes late, takes nothing of the new one's.
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		open(t, path).Close()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := files(t, path); !slices.Equal(got, []string{lockName}) {
			t.Errorf("files: got %q, want the lock alone", got)
		}
	})
}

func leaders(r *Reader) []Hot {
	hots, _ := r.AppendLeaders(nil)
	return hots
}

// What a killed daemon left goes at the next start, before or after Publish.
func TestLeftoversAreSweptAway(t *testing.T) {
	bothDirs(t, func(t *testing.T, path string) {
		dir := hold(t, path)
		other := hold(t, shmTestDir(t))
		foreign := published(t, diskTestDir(t))
		for range 3 {
			create(t, dir) // killed before Publish
		}
		create(t, other)
		killed := create(t, dir)
		if err := killed.Publish(); err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(path, TableName+".old")
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w := create(t, dir)
		open(t, path).Close() // still there until the next is published
		if err := w.Publish(); err != nil {
			t.Fatal(err)
		}
		got := len(files(t, path))
		wantFiles := 3 // lock, table, table.old
		if !onTmpfs(path) {
			wantFiles = 4 // and what the symlink leads to
		}
		if got != wantFiles {
			t.Errorf("files: got %q, want %d of them", files(t, path), wantFiles)
		}
		if got := len(files(t, other.Path)); got != 2 {
			t.Errorf("files of another daemon: got %q, want its lock and its table", files(t, other.Path))
		}
		open(t, filepath.Dir(foreign.Path())).Close()
		foreign.Close()
		w.Close()
	})
}

// Nothing that is no table of ours is overwritten or removed.
func TestPublishOverwritesNothing(t *testing.T) {
	bothDirs(t, func(t *testing.T, path string) {
		for name, make := range map[string]func(name string) error{
			"a file": func(name string) error { return os.WriteFile(name, []byte("precious"), 0o600) },
			"a long file": func(name string) error {
				return os.WriteFile(name, []byte(strings.Repeat("precious", 1000)), 0o600)
			},
			"an empty file":   func(name string) error { return os.WriteFile(name, nil, 0o600) },
			"a directory":     func(name string) error { return os.Mkdir(name, 0o700) },
			"a FIFO":          mkfifo,
			"a symlink":       func(name string) error { return os.Symlink(filepath.Join(path, lockName), name) },
			"a symlink away":  func(name string) error { return os.Symlink("/nowhere/at/all", name) },
			"a sly symlink":   func(name string) error { return os.Symlink(shmDir+"/"+shmPrefix()+"/../../etc/passwd", name) },
			"a symlink to it": func(name string) error { return os.Symlink(TableName, name) },
		} {
			t.Run(name, func(t *testing.T) {
				dir := hold(t, path)
				defer dir.Release()
				table := filepath.Join(path, TableName)
				if err := make(table); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(table)
				before, _ := os.Lstat(table)
				w := create(t, dir)
				err := w.Publish()
				if err == nil || !strings.Contains(err.Error(), table) && !strings.Contains(err.Error(), "remove it") {
					t.Errorf("publish: got %v, want a refusal that names the file", err)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("error of more than a line: %q", err)
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				after, err := os.Lstat(table)
				if err != nil || after.Mode() != before.Mode() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
					t.Errorf("the file: got %v, %v; want it untouched", after, err)
				}
			})
		}
	})
}

// A symlink that a killed daemon left, whose file is gone (a reboot).
func TestPublishReplacesDanglingSymlink(t *testing.T) {
	path := diskTestDir(t)
	old := published(t, path)
	target, err := os.Readlink(old.Path())
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(target)
	if _, err := Open(path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("open: got %v, want ErrNoDaemon", err)
	}
	w, err := Create(&Dir{Path: path}, testOrigin())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Publish(); err != nil {
		t.Fatal(err)
	}
	open(t, path).Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// Slots are dense, and reused last in, first out.
func TestSlots(t *testing.T) {
	w, err := NewAnonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	seen := map[uint32]bool{0: true}
	for range 3*recordsPerChunk + 1 {
		slot, err := w.NewSlot()
		if err != nil {
			t.Fatal(err)
		}
		if seen[slot] {
			t.Fatalf("slot %d was given twice, or is 0", slot)
		}
		seen[slot] = true
		w.Put(slot, &Hot{TID: slot})
	}
	want(t, "chunks", w.Header().ChunksUsed, 4)
	for _, slot := range []uint32{9, 700, 5} {
		w.FreeSlot(slot)
		h := Hot{TID: 1}
		if !w.Read(slot, &h) || h != (Hot{}) {
			t.Errorf("free slot %d: got %+v, want zeros", slot, h)
		}
	}
	for _, wantSlot := range []uint32{5, 700, 9, 3*recordsPerChunk + 2} {
		slot, _ := w.NewSlot()
		want(t, "slot", slot, wantSlot)
	}
	var h Hot
	for _, slot := range []uint32{0, 4 * recordsPerChunk, recordsMax, ^uint32(0)} {
		if w.Read(slot, &h) {
			t.Errorf("slot %d, which is not allocated, was read", slot)
		}
	}
	if got, most := w.Bytes(), uint64(2<<20); got < 4*recordsPerChunk*recordBytes || got > most {
		t.Errorf("bytes: got %d, want at least four chunks and at most %d", got, most)
	}
	w.Put(7, &Hot{TID: 7})
	if got := testing.AllocsPerRun(100, func() {
		slot, _ := w.NewSlot()
		w.Put(slot, &h)
		w.Get(slot, &h)
		w.FreeSlot(slot)
		w.Bump(&w.Header().Births, 1)
		w.Beat()
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

// Memory runs out: ErrFull, said in the header, and taken back with room.
func TestFull(t *testing.T) {
	w := published(t, shmTestDir(t))
	defer w.Close()
	r := open(t, filepath.Dir(w.Path()))
	defer r.Close()
	file := w.seg.file
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	full := func() uint32 { return atomic.LoadUint32(&r.Header().Full) }
	add(t, w, 1, 1)
	w.seg.file = null
	slots := 1
	for {
		slot, err := w.NewSlot()
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || slot > recordsPerChunk {
			t.Fatalf("slot %d: %v", slot, err)
		}
		slots++
	}
	want(t, "slots of the one chunk", slots, recordsPerChunk-1)
	want(t, "full", full(), 1)
	w.FreeSlot(5)
	slot, err := w.NewSlot()
	if err != nil || slot != 5 {
		t.Errorf("after a free: got %d, %v; want 5", slot, err)
	}
	want(t, "full, now that there was room", full(), 0)
	if err := w.Tree().InsertNew(3_000_000, 5); !errors.Is(err, ErrFull) {
		t.Errorf("a new page of the tree: got %v, want ErrFull", err)
	}
	want(t, "full", full(), 1)
	want(t, "lookup after the failure", r.Tree().Lookup(3_000_000), 0)
	w.seg.file = file
	if err := w.Tree().InsertNew(3_000_000, 5); err != nil {
		t.Error(err)
	}
	want(t, "full, with memory", full(), 0)
	if _, err := w.NewSlot(); err != nil {
		t.Error(err)
	}
}

// Reading takes no memory of the file: what was not allocated is not touched.
func TestReadingAllocatesNothing(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	for _, tid := range []uint32{1, 2047, 2048, 100_000, radix.Tree22Keys - 1} {
		add(t, w, tid, tid)
	}
	before := w.Bytes()
	r := open(t, path)
	defer r.Close()
	want(t, "leaders", len(leaders(r)), 5)
	tasks, _ := r.AppendTasks(nil)
	want(t, "tasks", len(tasks), 5)
	for nr := uint32(0); nr < radix.Tree22Keys; nr += 511 {
		r.ByPID(nr)
	}
	var h Hot
	for slot := uint32(0); slot < recordsMax; slot += 255 {
		r.Read(slot, &h)
	}
	want(t, "bytes after reading", w.Bytes(), before)
	if before > 1<<20 {
		t.Errorf("bytes of five tasks: got %d, want less than 1 MiB", before)
	}
}
