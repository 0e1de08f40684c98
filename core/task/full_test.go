package task

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// starve lets the table's file get no more memory, as if its file system were
// full, until feed is called: its descriptor is replaced by one that cannot write.
func starve(t *testing.T, w *table.Writer) (feed func()) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range fds {
		link, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil || filepath.Dir(link) != filepath.Dir(w.Path()) || len(filepath.Base(link)) <= len(table.TableName) {
			continue
		}
		fd, _ := strconv.Atoi(entry.Name())
		kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := unix.Dup3(kept, fd, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			unix.Close(kept)
		}
	}
	t.Fatal("the table's descriptor was not found")
	return nil
}

const chunkRecords = 512 // of the table

// fill makes tasks until the table has no room.
func (w *world) fill(from uint32) (end uint32) {
	w.Helper()
	for tid := from; ; tid++ {
		f := ForkEvent{TID: tid, TGID: tid, PPID: 1, AtNs: w.step(), BootNs: w.now + bootNs}
		switch err := w.e.ObserveFork(&f, &w.c); {
		case errors.Is(err, table.ErrFull):
			return tid
		case err != nil:
			w.Fatal(err)
		case tid > from+2*chunkRecords:
			w.Fatal("the table never gets full")
		}
	}
}

// Out of room, by any door: what is left out is left out whole, the rest goes on.
func TestFullTable(t *testing.T) {
	w := shmWorld(t)
	w.fork(1, 1, 0)
	feed := starve(t, w.w)
	end := w.fill(2)
	w.checked()
	want(t, "tasks", w.w.Header().Tasks, chunkRecords-1)
	want(t, "header says so", w.w.Header().Full, 1)
	want(t, "told of a task that was left out", w.c.Type, Nothing)
	n := w.e.Stats().Full.Load()
	want(t, "counted", n, 1)

	thread := ForkEvent{TID: end, TGID: 2, PPID: 2, AtNs: w.step(), BootNs: w.now + bootNs}
	want(t, "fork of a thread: ErrFull", errors.Is(w.e.ObserveFork(&thread, &w.c), table.ErrFull), true)
	want(t, "threads of its group", w.task(2).Threads, 1)
	w.checked()
	// A thread of a process that was thought to have ended: it stays ended.
	w.exit(3, 3)
	thread.TGID, thread.AtNs = 3, w.step()
	want(t, "fork of a thread of a zombie: ErrFull", errors.Is(w.e.ObserveFork(&thread, &w.c), table.ErrFull), true)
	w.checked()
	w.zombie(3)
	seen := w.seen(end, end, 1, 5, "left out")
	w.e.MergeBegin()
	want(t, "merge: ErrFull", errors.Is(w.e.MergeTask(&seen), table.ErrFull), true)
	threadSeen := w.seen(end+1, end, 1, 5, "its thread")
	if err := w.e.MergeTask(&threadSeen); err != nil {
		t.Errorf("merge of a thread whose leader was left out: got %v, want nothing done", err)
	}
	w.e.MergeEnd(0, nil)
	w.checked()
	w.gone(end)
	w.gone(end + 1)

	// Room comes back when somebody goes.
	w.exit(7, 7)
	w.e.ObserveFree(7, w.step())
	want(t, "fork", w.fork(end, end, 1), Born)
	want(t, "header after it", w.w.Header().Full, 0)
	if f := (ForkEvent{TID: end + 1, TGID: end + 1, PPID: 1, AtNs: w.step(), BootNs: w.now + bootNs}); !errors.Is(w.e.ObserveFork(&f, &w.c), table.ErrFull) {
		t.Error("there is room for more than went")
	}
	feed()
	want(t, "fork", w.fork(end+1, end+1, 1), Born)
	want(t, "header", w.w.Header().Full, 0)
	checkSlots(t, w.e)
}

// The tree can need memory of its own for a number far from all others: the slot
// that was taken for it goes back.
func TestFullTree(t *testing.T) {
	w := shmWorld(t)
	w.fork(1, 1, 0)
	feed := starve(t, w.w)
	far := ForkEvent{TID: 4_000_000, TGID: 4_000_000, PPID: 1, AtNs: w.step(), BootNs: w.now + bootNs}
	for range 3 {
		if err := w.e.ObserveFork(&far, &w.c); !errors.Is(err, table.ErrFull) {
			t.Fatalf("got %v, want ErrFull", err)
		}
		w.checked()
		want(t, "header says so", w.w.Header().Full, 1)
	}
	checkSlots(t, w.e)
	want(t, "fork near others", w.fork(2, 2, 1), Born)
	feed()
	want(t, "fork", w.fork(far.TID, far.TID, 1), Born)
	want(t, "header", w.w.Header().Full, 0)
	checkSlots(t, w.e)
}
