package procfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// open opens a proc file system for a test.
func open(t testing.TB, root string) *Proc {
	t.Helper()
	p, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// fixture writes files, "path" to content; a path that ends in / is a folder.
func fixture(t *testing.T, files map[string]string) *Proc {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == path {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, root)
}

func TestFixture(t *testing.T) {
	p := fixture(t, map[string]string{
		"7/stat":                     statLine("7", "big", "S", "14=100"),
		"7/task/7/stat":              statLine("7", "big", "S", "14=1", "20=2"),
		"7/task/8/stat":              statLine("8", "a) R 1 \n\xff(b", "R", "20=2"),
		"7/task/8/comm":              "a) R 1 \n\xff(b\n",
		"7/cmdline":                  "sleep\x0010\x00",
		"4194303/":                   "",
		"010/":                       "",
		"12x/":                       "",
		"4294967296/":                "",
		"self/":                      "",
		"stat":                       "cpu 1 2\nintr 5\nbtime 1700000000\nprocesses 3\n",
		"sys/kernel/random/boot_id":  "01234567-89ab-cdef-0123-456789abcdef\n",
		"9/stat":                     "9 (cut) S 1 2",
		"10/task/10/comm":            "\n",
		"11/task/11/comm":            "rcu_exp_par_gp_kthread_worker/0\n",
		"4194302/task/4194302/stat":  statLine("4194302", "last", "S"),
		"4194302/task/4194301/stat":  statLine("4194301", "last", "S"),
		"4194302/task/not-a-number/": "",
	})
	var st Stat
	if err := p.Stat(7, &st); err != nil || st.UtimeTicks != 100 {
		t.Errorf("Stat(7) = %+v, %v, want 100 ticks of the process", st, err)
	}
	if err := p.TaskStat(7, 7, &st); err != nil || st.UtimeTicks != 1 || st.NumThreads != 2 {
		t.Errorf("TaskStat(7, 7) = %+v, %v, want 1 tick of the thread, 2 threads", st, err)
	}
	if err := p.TaskStat(4194302, 4194302, &st); err != nil || st.PID != 4194302 {
		t.Errorf("TaskStat(4194302, 4194302) = %+v, %v, want it found (B33)", st, err)
	}
	for _, pid := range []uint32{8, 4194303} { // no directory; a directory without stat (B37)
		if err := p.Stat(pid, &st); !errors.Is(err, ErrGone) || !errors.Is(err, unix.ENOENT) {
			t.Errorf("Stat(%d) = %v, want ErrGone and ENOENT", pid, err)
		}
	}
	if err := p.Stat(9, &st); err == nil || errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "9/stat") {
		t.Errorf("Stat of half a line = %v, want an error that names 9/stat", err)
	}

	for _, tt := range []struct {
		pid, tid uint32
		want     string
	}{{7, 8, "a) R 1 \n\xff(b"}, {10, 10, ""}, {11, 11, "rcu_exp_par_gp_"}} {
		got := comm("left from before")
		if err := p.Comm(tt.pid, tt.tid, &got); err != nil || got != comm(tt.want) {
			t.Errorf("Comm(%d, %d) = %q, %v, want %q", tt.pid, tt.tid, got, err, tt.want)
		}
	}
	buf := make([]byte, 64)
	if n, err := p.Cmdline(7, buf); err != nil || string(buf[:n]) != "sleep\x0010\x00" {
		t.Errorf("Cmdline(7) = %q, %v, want sleep 10", buf[:n], err)
	}
	if n, err := p.Cmdline(7, buf[:3]); err != nil || string(buf[:n]) != "sle" {
		t.Errorf("Cmdline(7) into 3 bytes = %q, %v, want sle", buf[:n], err)
	}

	pids, err := p.PIDs(nil)
	slices.Sort(pids)
	if want := []uint32{7, 9, 10, 11, 4194302, 4194303}; err != nil || !slices.Equal(pids, want) {
		t.Errorf("PIDs = %v, %v, want %v", pids, err, want)
	}
	tids, oneCall, err := p.TIDs(4194302, []uint32{1})
	slices.Sort(tids)
	if want := []uint32{1, 4194301, 4194302}; err != nil || !oneCall || !slices.Equal(tids, want) {
		t.Errorf("TIDs(4194302) = %v, %v, %v, want %v in one call", tids, oneCall, err, want)
	}
	if tids, _, err := p.TIDs(9, nil); !errors.Is(err, ErrGone) || len(tids) != 0 {
		t.Errorf("TIDs(9) = %v, %v, want ErrGone", tids, err)
	}

	if id, err := p.BootID(); err != nil || id != "01234567-89ab-cdef-0123-456789abcdef" {
		t.Errorf("BootID = %q, %v", id, err)
	}
	if s, err := p.BootTime(); err != nil || s != 1700000000 {
		t.Errorf("BootTime = %d, %v, want 1700000000", s, err)
	}
	if hides, err := p.HidesOthers(); err != nil || !hides {
		t.Errorf("HidesOthers without a process 1 = %v, %v, want true", hides, err)
	}
}

func TestSystemRefuses(t *testing.T) {
	p := fixture(t, map[string]string{
		"stat":                      "cpu 1 2\nbtime x\n",
		"sys/kernel/random/boot_id": "short\n",
	})
	if id, err := p.BootID(); err == nil {
		t.Errorf("BootID = %q, want an error", id)
	}
	if s, err := p.BootTime(); err == nil {
		t.Errorf("BootTime = %d, want an error", s)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("Open of nothing = %v, want ENOENT", err)
	}
}

// TestGoneAtRead: B35. A task can end between open and read.
func TestGoneAtRead(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := open(t, "")
	var pb pathBuf
	fd, errno := openat(p.dirfd, pb.pid(uint32(cmd.Process.Pid), "/stat"), unix.O_RDONLY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Close(fd)
	cmd.Process.Kill()
	cmd.Wait()
	_, errno = read(fd, make([]byte, 64))
	if err := p.fileError("read", []byte("x\x00"), errno); !errors.Is(err, ErrGone) || !errors.Is(err, unix.ESRCH) {
		t.Errorf("read of an ended process = %v, want ErrGone and ESRCH", err)
	}
	var st Stat
	if err := p.Stat(uint32(cmd.Process.Pid), &st); !errors.Is(err, ErrGone) {
		t.Errorf("Stat of an ended process = %v, want ErrGone", err)
	}
}

func TestRealProc(t *testing.T) {
	p := open(t, "/proc")
	self := uint32(os.Getpid())
	pids, err := p.PIDs(nil)
	if err != nil || !slices.Contains(pids, self) || !slices.IsSorted(pids) {
		t.Errorf("PIDs = %v, %v, want it ascending and with %d", pids, err, self)
	}
	done := make(chan bool)
	tid := make(chan uint32)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- uint32(unix.Gettid())
		<-done
	}()
	want := <-tid
	defer close(done)
	tids, _, err := p.TIDs(self, nil)
	if err != nil || !slices.Contains(tids, want) || tids[0] != self {
		t.Errorf("TIDs = %v, %v, want it to begin with %d and to have %d", tids, err, self, want)
	}
	var st, thread Stat
	if err := p.Stat(self, &st); err != nil {
		t.Fatal(err)
	}
	if err := p.TaskStat(self, self, &thread); err != nil {
		t.Fatal(err)
	}
	if thread.PID != self || thread.PPID != uint32(os.Getppid()) || thread.StartTicks != st.StartTicks || thread.Comm != st.Comm || thread.NumThreads < 2 {
		t.Errorf("TaskStat of the leader = %+v, want the process of Stat, %+v", thread, st)
	}
	if ticks, err := ClockTicks(); err != nil || ticks == 0 {
		t.Errorf("ClockTicks = %d, %v", ticks, err)
	}
	if id, err := p.BootID(); err != nil || strings.Count(id, "-") != 4 {
		t.Errorf("BootID = %q, %v", id, err)
	}
	if s, err := p.BootTime(); err != nil || s == 0 {
		t.Errorf("BootTime = %d, %v", s, err)
	}
}

// TestListGrows lists a directory that does not fit into the buffer.
func TestListGrows(t *testing.T) {
	p := open(t, t.TempDir())
	want := make([]uint32, 300)
	for i := range want {
		want[i] = uint32(1000000 + i)
		if err := os.Mkdir(filepath.Join(p.Root(), strconv.Itoa(int(want[i]))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	small := make([]byte, 256)
	p.spare.Store(&small)
	got, oneCall, err := p.list([]byte(".\x00"), []uint32{1})
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != 1 {
		t.Errorf("list begins with %d, want what was in dst", got[0])
	}
	got = got[1:]
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("list = %d names %v, want %d", len(got), got, len(want))
	}
	if spare := p.spare.Load(); !oneCall || len(*spare) < 300*direntMax {
		t.Errorf("oneCall = %v with a buffer of %d bytes, want true with one that has grown", oneCall, len(*spare))
	}
}

func TestAppendNumbers(t *testing.T) {
	entry := func(name string) []byte {
		b := make([]byte, (direntName+len(name)+1+7)/8*8)
		b[16], b[17] = byte(len(b)), byte(len(b)>>8)
		if runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64" {
			b[16], b[17] = b[17], b[16]
		}
		copy(b[direntName:], name)
		return b
	}
	tests := []struct {
		name  string
		block []byte
		want  []uint32
	}{
		{"none", nil, nil},
		{"numbers and others", slices.Concat(entry("."), entry("1"), entry("self"), entry("4194303"), entry("01"), entry("4294967295"), entry("4294967296"), entry("")), []uint32{1, 4194303, 1<<32 - 1}},
		{"cut entry", slices.Concat(entry("5"), entry("6")[:21]), []uint32{5}},
		{"entry of length 0", slices.Concat(entry("5"), make([]byte, 64)), []uint32{5}},
	}
	for _, tt := range tests {
		if got := appendNumbers(nil, tt.block); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func FuzzAppendNumbers(f *testing.F) {
	f.Add([]byte("0123456789012345\x18\x00\x04123\x00\x00"))
	f.Fuzz(func(t *testing.T, block []byte) {
		for _, v := range appendNumbers(nil, block) {
			if v == 0 {
				t.Errorf("a name gave number 0 in %q", block)
			}
		}
	})
}

// TestStressListing lists and reads from several goroutines at once.
func TestStressListing(t *testing.T) {
	p := open(t, "")
	self := uint32(os.Getpid())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var dst []uint32
			var st Stat
			for range 50 {
				var err error
				if dst, err = p.PIDs(dst[:0]); err != nil || !slices.Contains(dst, self) {
					t.Errorf("PIDs = %v, %v, want it with %d", dst, err, self)
					return
				}
				if err := p.TaskStat(self, self, &st); err != nil || st.PID != self {
					t.Errorf("TaskStat = %+v, %v", st, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAllocs(t *testing.T) {
	p := open(t, "")
	self := uint32(os.Getpid())
	var st Stat
	var name [16]byte
	buf := make([]byte, 4096)
	pids, _ := p.PIDs(nil)
	pids = slices.Grow(pids, 10000)
	tids := make([]uint32, 0, 1000)
	for what, f := range map[string]func() error{
		"Stat":     func() error { return p.Stat(self, &st) },
		"TaskStat": func() error { return p.TaskStat(self, self, &st) },
		"Comm":     func() error { return p.Comm(self, self, &name) },
		"Cmdline":  func() error { _, err := p.Cmdline(self, buf); return err },
		"PIDs":     func() (err error) { pids, err = p.PIDs(pids[:0]); return err },
		"TIDs":     func() (err error) { tids, _, err = p.TIDs(self, tids[:0]); return err },
		"gone": func() error {
			if err := p.TaskStat(self, 1, &st); !errors.Is(err, ErrGone) {
				return fmt.Errorf("task 1 of process %d: %v", self, err)
			}
			return nil
		},
	} {
		got := testing.AllocsPerRun(50, func() {
			if err := f(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		})
		if got != 0 {
			t.Errorf("%s allocates %v times, want 0", what, got)
		}
	}
}

func BenchmarkTaskStat(b *testing.B) {
	p := open(b, "")
	self := uint32(os.Getpid())
	var st Stat
	for b.Loop() {
		if err := p.TaskStat(self, self, &st); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleProc() {
	proc, err := Open("/proc")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proc.Close()
	self := uint32(os.Getpid())
	var st Stat
	err = proc.TaskStat(self, self, &st)
	fmt.Println(err, st.PID == self, st.PPID == uint32(os.Getppid()))
	// Output: <nil> true true
}

func ExampleAppendEscaped() {
	fmt.Printf("%s\n", AppendEscaped(nil, []byte("a) R 1 \n\xff(b")))
	// Output: a) R 1 \n\xff(b
}
