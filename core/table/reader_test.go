package table

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestReader(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	r := open(t, path)
	defer r.Close()
	for _, id := range [][2]uint32{{1, 1}, {5, 90}, {90, 90}, {91, 90}, {2048, 2048}, {1 << 21, 1 << 21}} {
		add(t, w, id[0], id[1])
	}
	numbers := func(hots []Hot) (tids []uint32) {
		for i := range hots {
			tids = append(tids, hots[i].TID)
		}
		return tids
	}
	equal := func(what string, got, want []uint32) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: got %v, want %v", what, got, want)
			}
		}
	}
	hots, unstable := r.AppendLeaders([]Hot{{TID: 7}})
	equal("leaders", numbers(hots), []uint32{7, 1, 90, 2048, 1 << 21})
	want(t, "unstable", unstable, 0)
	hots, unstable = r.AppendTasks([]Hot{{TID: 7}})
	equal("tasks", numbers(hots), []uint32{7, 1, 5, 90, 91, 2048, 1 << 21})
	want(t, "unstable", unstable, 0)
	for _, h := range hots[1:] {
		want(t, "parent, a thread's from its leader", h.PPID, 1)
		want(t, "parent at fork", h.PPIDAtFork, 2)
		want(t, "flags", h.Flags, 0)
	}
	for _, nr := range []uint32{0, 2, 4_000_000, 1 << 22, ^uint32(0)} {
		if h, ok, unstable := r.ByPID(nr); ok || unstable {
			t.Errorf("task %d: got %+v, %v, %v; want none", nr, h, ok, unstable)
		}
	}
	h, ok, _ := r.ByPID(5)
	want(t, "by pid: a thread", ok && h.TID == 5 && h.TGID == 90, true)

	// A slot that has another task by now, and a group that has just gone.
	remove(w, 2048)
	slot, _ := w.NewSlot()
	w.Put(slot, &Hot{TID: 3000, TGID: 3000})
	if _, err := w.Tree().Insert(2048, slot); err != nil {
		t.Fatal(err)
	}
	w.Tree().SetTag(2048, 0)
	remove(w, 90)
	_, ok, unstable2 := r.ByPID(2048)
	want(t, "by pid: another's record", ok || unstable2, false)
	equal("leaders", numbers(leaders(r)), []uint32{1, 1 << 21})
	hots, _ = r.AppendTasks(nil)
	equal("tasks", numbers(hots), []uint32{1, 5, 91, 1 << 21})
	want(t, "flags of a thread without its leader", hots[1].Flags, FlagPPIDEstimated)
}

// A writer that was stopped inside a write: the record is said to be unstable,
// after a bounded time.
func TestUnstableRecord(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	r := open(t, path)
	defer r.Close()
	add(t, w, 10, 10)
	slot := add(t, w, 11, 11)
	add(t, w, 12, 11)
	seq := (*uint64)(unsafe.Pointer(w.at(slot)))
	atomic.AddUint64(seq, 1)
	begin := time.Now()
	if _, ok, unstable := r.ByPID(11); ok || !unstable {
		t.Errorf("by pid: got %v, %v; want false, true", ok, unstable)
	}
	hots, unstable := r.AppendLeaders(nil)
	if len(hots) != 1 || hots[0].TID != 10 || unstable != 1 {
		t.Errorf("leaders: got %v, unstable %d; want task 10 and 1", hots, unstable)
	}
	hots, unstable = r.AppendTasks(nil)
	if len(hots) != 2 || unstable != 1 {
		t.Errorf("tasks: got %v, unstable %d; want 2 and 1", hots, unstable)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("four reads of a stuck record took %v", took)
	}
	atomic.AddUint64(seq, 1)
	if _, ok, unstable := r.ByPID(11); !ok || unstable {
		t.Errorf("by pid once it is written: got %v, %v; want true, false", ok, unstable)
	}
}

func TestFresh(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	r := open(t, path)
	defer r.Close()
	now := MonotonicNs()
	for _, c := range []struct {
		name              string
		beat, stale       uint64
		state             uint32
		err               error
		ageMost, ageLeast time.Duration
	}{
		{name: "live", beat: now, state: TableLive, ageMost: time.Second},
		{name: "draining", beat: now, state: TableDraining, ageMost: time.Second},
		{name: "no heartbeat", beat: now - 3e9, state: TableLive, err: ErrDead, ageLeast: 3 * time.Second, ageMost: time.Minute},
		{name: "dead", beat: now, state: TableDead, err: ErrDead, ageMost: time.Second},
		{name: "under repair", beat: now, stale: now - 5e9, state: TableLive, err: ErrStale, ageLeast: 5 * time.Second, ageMost: time.Minute},
		{name: "both", beat: now - 3e9, stale: now - 5e9, state: TableLive, err: ErrDead, ageLeast: 3 * time.Second, ageMost: 4 * time.Second},
		{name: "a heartbeat to come", beat: now + 3600e9, state: TableLive},
	} {
		atomic.StoreUint64(&w.Header().HeartbeatNs, c.beat)
		atomic.StoreUint64(&w.Header().StaleSinceNs, c.stale)
		atomic.StoreUint32(&w.Header().State, c.state)
		age, err := r.Fresh()
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || age < c.ageLeast || age > c.ageMost {
			t.Errorf("%s: got %v, %v; want %v to %v, %v", c.name, age, err, c.ageLeast, c.ageMost, c.err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(name string) error
		err  error
	}{
		{"a FIFO", mkfifo, ErrFormat},
		{"a directory", func(name string) error { return os.Mkdir(name, 0o755) }, ErrFormat},
		{"an empty file", func(name string) error { return os.WriteFile(name, nil, 0o644) }, ErrFormat},
		{"a short file", func(name string) error { return os.WriteFile(name, make([]byte, HeaderBytes-1), 0o644) }, ErrFormat},
		{"zeros", func(name string) error { return os.WriteFile(name, make([]byte, 2*HeaderBytes), 0o644) }, ErrFormat},
		{"a huge file", func(name string) error {
			return errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, 1<<41))
		}, ErrFormat},
		{"a device", func(name string) error { return os.Symlink("/dev/zero", name) }, ErrFormat},
		{"nothing", func(string) error { return nil }, ErrNoDaemon},
		{"a dangling symlink", func(name string) error { return os.Symlink("/nowhere/at/all", name) }, ErrNoDaemon},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := shmTestDir(t)
			if err := errors.Join(os.Chmod(dir, 0o755), c.make(filepath.Join(dir, TableName))); err != nil {
				t.Fatal(err)
			}
			soon(t, func() {
				if _, err := Open(dir); !errors.Is(err, c.err) {
					t.Errorf("got %v, want %v", err, c.err)
				}
			})
		})
	}
}

// Only who may write in the directory says what the table's name leads to.
func TestOpenInOpenDirectory(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v, want ErrFormat", err)
	}
}

// Of another boot, or dead: there is no daemon, but there may be one elsewhere.
func TestOpenGoesOnAfterTheDead(t *testing.T) {
	for name, kill := range map[string]func(h *Header){
		"another boot": func(h *Header) { h.BootID[0] ^= 1 },
		"dead":         func(h *Header) { h.State = TableDead },
	} {
		t.Run(name, func(t *testing.T) {
			first, second := shmTestDir(t), shmTestDir(t)
			w := published(t, first)
			defer w.Close()
			kill(w.Header())
			if _, err := Open(first, second); !errors.Is(err, ErrNoDaemon) {
				t.Errorf("got %v, want ErrNoDaemon", err)
			}
			living := published(t, second)
			defer living.Close()
			r := open(t, first, second)
			defer r.Close()
			want(t, "path", r.Path(), living.Path())
		})
	}
}

// A damaged word of the header is refused or survived, but for those that tell
// where things are.
func TestOpenDamagedHeader(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	add(t, w, 1, 1)
	header := (*[HeaderBytes]byte)(unsafe.Pointer(w.Header()))
	good := *header
	fatal := map[uintptr]bool{}
	for _, off := range []uintptr{
		unsafe.Offsetof(Header{}.Magic), unsafe.Offsetof(Header{}.Major), unsafe.Offsetof(Header{}.ByteOrder),
		unsafe.Offsetof(Header{}.DirOff), unsafe.Offsetof(Header{}.TagOff), unsafe.Offsetof(Header{}.SlotOff), unsafe.Offsetof(Header{}.RecordOff),
	} {
		fatal[off] = true
	}
	for off := uintptr(0); off < 512; off += 4 {
		for _, word := range []uint32{0xffffffff, 0x80000000, 0x7fffffff, 1} {
			*(*uint32)(unsafe.Pointer(&header[off])) = word
			r, err := Open(path)
			switch {
			case err == nil:
				r.AppendTasks(nil)
				r.ByPID(1)
				r.Fresh()
				r.Close()
				if fatal[off] && *header != good {
					t.Errorf("word %d = %#x was accepted", off, word)
				}
			case !errors.Is(err, ErrFormat) && !errors.Is(err, ErrNoDaemon):
				t.Errorf("word %d = %#x: got %v, want ErrFormat or ErrNoDaemon", off, word, err)
			}
			*header = good
		}
	}
	open(t, path).Close()
}

func TestOpenTruncated(t *testing.T) {
	for _, size := range []int64{HeaderBytes, HeaderBytes + 1, int64(currentLayout().slots), int64(currentLayout().records), int64(currentLayout().size) - 1} {
		path := shmTestDir(t)
		w := published(t, path)
		if err := os.Truncate(w.Path(), size); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: got %v, want ErrFormat", size, err)
		}
		os.Truncate(w.Path(), int64(currentLayout().size))
		w.Close()
	}
}

// FuzzOpen opens a file with any header over a small file of any content.
func FuzzOpen(f *testing.F) {
	l := currentLayout()
	w, err := NewAnonymous()
	if err != nil {
		f.Fatal(err)
	}
	h := *w.Header()
	w.Close()
	f.Add((*[HeaderBytes]byte)(unsafe.Pointer(&h))[:], uint32(l.size), []byte{})
	small := h
	small.DirOff, small.TagOff, small.SlotOff, small.RecordOff = 4096, 4096, 4096, 8192
	small.FileBytes, small.ChunksMax, small.ChunksUsed = 0, 1, 1
	f.Add((*[HeaderBytes]byte)(unsafe.Pointer(&small))[:400], uint32(l.records), []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 1})
	f.Fuzz(func(t *testing.T, header []byte, size uint32, content []byte) {
		mem, err := unix.Mmap(-1, 0, int(max(size%(1<<26), HeaderBytes)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Munmap(mem)
		copy(mem[HeaderBytes:], content)
		copy(mem[:HeaderBytes], header)
		view, err := newView(mem, nil)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("got %v, want ErrFormat", err)
			}
			return
		}
		r := &Reader{View: view, mem: mem}
		r.AppendLeaders(nil)
		r.ByPID(1)
		r.ByPID(1<<22 - 1)
		var hot Hot
		for _, slot := range []uint32{0, 1, 511, 512, 1 << 20, 1<<22 - 1, 1 << 22, 1<<32 - 1} {
			r.Read(slot, &hot)
		}
		r.Fresh()
		checkBoot(r.Header())
	})
}

func TestReaderAllocs(t *testing.T) {
	path := shmTestDir(t)
	w := published(t, path)
	defer w.Close()
	for tid := uint32(1); tid < 500; tid++ {
		add(t, w, tid, tid)
	}
	r := open(t, path)
	defer r.Close()
	hots := make([]Hot, 0, 1000)
	n := 0
	if got := testing.AllocsPerRun(50, func() {
		leaders, _ := r.AppendLeaders(hots[:0])
		tasks, _ := r.AppendTasks(hots[:0])
		h, _, _ := r.ByPID(77)
		r.Fresh()
		n += len(leaders) + len(tasks) + int(h.TID)
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
	if n == 0 {
		t.Error("nothing was listed")
	}
}

func BenchmarkAppendLeaders(b *testing.B) {
	for _, c := range []struct {
		name    string
		threads uint32
	}{{"processes=1k", 0}, {"processes=1k,threads=100k", 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			path := shmTestDir(b)
			w := published(b, path)
			defer w.Close()
			for i := range uint32(1000) {
				add(b, w, 1+i, 1+i)
			}
			for i := range c.threads {
				add(b, w, 2000+i, 1)
			}
			r := open(b, path)
			defer r.Close()
			hots := make([]Hot, 0, 1000)
			for b.Loop() {
				hots = list(r, hots)
			}
			if len(hots) != 1000 {
				b.Fatalf("got %d leaders, want 1000", len(hots))
			}
		})
	}
}

//go:noinline
func list(r *Reader, hots []Hot) []Hot {
	hots, _ = r.AppendLeaders(hots[:0])
	return hots
}
