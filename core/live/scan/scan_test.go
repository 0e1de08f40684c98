package scan

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/procfile"
)

func open(t testing.TB, root string) *procfile.Proc {
	t.Helper()
	p, err := procfile.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// line is a stat line with what a Task takes from it.
func line(tid uint32, name string, state byte, ppid, flags, threads uint32, start uint64) string {
	const zeros9to13 = " 0 0 0 0"
	return fmt.Sprintf("%d (%s) %c %d 0 0 0 0 %d%s 0 0 0 0 0 0 %d 0 %d", tid, name, state, ppid, flags, zeros9to13, threads, start) +
		fmt.Sprintf(" %s\n", "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func name(s string) (c [16]byte) {
	copy(c[:], s)
	return c
}

func TestScanFixture(t *testing.T) {
	root := t.TempDir()
	stat := func(pid, tid uint32, content string) {
		write(t, fmt.Sprintf("%s/%d/task/%d/stat", root, pid, tid), content)
	}
	stat(2, 2, line(2, "ksoftirqd/0", 'S', 0, procfile.PFKThread, 1, 1))
	stat(20, 20, line(20, "a) R 1 \n\xff(b", 'S', 2, 0, 3, 500))
	stat(20, 22, line(22, "worker", 'R', 2, 0, 3, 502))
	stat(20, 21, line(21, "worker", 'R', 2, 0, 3, 501))
	stat(30, 30, line(30, "left", 'Z', 20, 0, 2, 600)) // exited leader, B44
	stat(30, 31, line(31, "lives", 'S', 20, 0, 2, 601))
	stat(40, 40, line(40, "reaped", 'X', 0, 0, 0, 700))
	stat(4194303, 4194303, line(4194303, "last", 'S', 20, 0, 1, 800))
	stat(4194303, 5, line(5, "not listed", 'S', 20, 0, 1, 800))        // one task: no listing
	if err := os.Mkdir(filepath.Join(root, "50"), 0o755); err != nil { // B37
		t.Fatal(err)
	}

	var got []Task
	stats, err := New(open(t, root)).Scan(func(task *Task) { got = append(got, *task) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A fixture's folder is not listed by number: compare processes in order.
	slices.SortStableFunc(got, func(a, b Task) int { return int(a.TGID) - int(b.TGID) })
	want := []Task{
		{TID: 2, TGID: 2, Flags: procfile.PFKThread, Threads: 1, StartTicks: 1, State: 'S', Comm: name("ksoftirqd/0")},
		{TID: 20, TGID: 20, PPID: 2, Threads: 3, StartTicks: 500, State: 'S', Comm: name("a) R 1 \n\xff(b")},
		{TID: 21, TGID: 20, PPID: 2, Threads: 3, StartTicks: 501, State: 'R', Comm: name("worker")},
		{TID: 22, TGID: 20, PPID: 2, Threads: 3, StartTicks: 502, State: 'R', Comm: name("worker")},
		{TID: 30, TGID: 30, PPID: 20, Threads: 2, StartTicks: 600, State: 'Z', Comm: name("left")},
		{TID: 31, TGID: 30, PPID: 20, Threads: 2, StartTicks: 601, State: 'S', Comm: name("lives")},
		{TID: 4194303, TGID: 4194303, PPID: 20, Threads: 1, StartTicks: 800, State: 'S', Comm: name("last")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("tasks\n got %+v\nwant %+v", got, want)
	}
	stats.DurationNs = 0
	if want := (Stats{Processes: 4, Threads: 7, Vanished: 2}); stats != want {
		t.Errorf("stats = %+v, want %+v", stats, want)
	}
}

func TestLeaders(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/20/task/20/stat", line(20, "p", 'S', 1, 0, 2, 500))
	write(t, root+"/20/task/21/stat", line(21, "p", 'S', 1, 0, 2, 500))
	s := New(open(t, root))
	var tids []uint32
	visit := func(task *Task) { tids = append(tids, task.TID) }
	if stats, err := s.Leaders(visit); err != nil || !slices.Equal(tids, []uint32{20}) || stats.Processes != 1 || stats.Threads != 1 {
		t.Errorf("Leaders = %v, %+v, %v, want the leader 20 alone", tids, stats, err)
	}
	tids = nil
	if _, err := s.Scan(visit, nil); err != nil || !slices.Equal(tids, []uint32{20, 21}) {
		t.Errorf("Scan after Leaders = %v, %v, want 20 and 21", tids, err)
	}
}

// TestScanVanishing lists a thread that is never there: the list is taken for
// whole once a second one agrees. A thread that a first list lacked is found.
func TestScanVanishing(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/20/task/20/stat", line(20, "p", 'S', 1, 0, 4, 500))
	write(t, root+"/20/task/21/stat", line(21, "p", 'S', 1, 0, 4, 500))
	if err := os.Mkdir(root+"/20/task/22", 0o755); err != nil {
		t.Fatal(err)
	}
	var tids []uint32
	visit := func(task *Task) {
		tids = append(tids, task.TID)
		if task.TID == 21 { // as if the list had been cut short before it
			write(t, root+"/20/task/23/stat", line(23, "p", 'S', 1, 0, 4, 500))
		}
	}
	stats, err := New(open(t, root)).Scan(visit, nil)
	if want := []uint32{20, 21, 23}; err != nil || !slices.Equal(tids, want) {
		t.Errorf("tasks = %v, %v, want %v, each once", tids, err, want)
	}
	stats.DurationNs = 0
	if want := (Stats{Processes: 1, Threads: 3, Vanished: 1}); stats != want {
		t.Errorf("stats = %+v, want %+v", stats, want)
	}
}

// TestScanRestless changes the list at each reading: the scan ends all the
// same, and says that it is not sure.
func TestScanRestless(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/20/task/20/stat", line(20, "p", 'S', 1, 0, 4, 500))
	write(t, root+"/20/task/21/stat", line(21, "p", 'S', 1, 0, 4, 500))
	if err := os.Mkdir(root+"/20/task/1000", 0o755); err != nil {
		t.Fatal(err)
	}
	next := uint32(22)
	visit := func(task *Task) {
		if task.TID > 20 {
			write(t, fmt.Sprintf("%s/20/task/%d/stat", root, next), line(next, "p", 'S', 1, 0, 4, 500))
			next++
		}
	}
	stats, err := New(open(t, root)).Scan(visit, nil)
	if err != nil || stats.Incomplete != 1 || stats.Threads != 1+listsMax {
		t.Errorf("stats = %+v, %v, want 1 incomplete, %d threads", stats, err, 1+listsMax)
	}
}

func TestScanErrors(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/20/task/20/stat", "20 (cut")
	if _, err := New(open(t, root)).Scan(func(*Task) {}, nil); err == nil {
		t.Error("scan of half a stat line gave no error")
	}
	stop := errors.New("stop")
	for pid := range uint32(2 * pumpTasks) {
		write(t, fmt.Sprintf("%s/%d/task/%d/stat", root, pid+20, pid+20), line(pid+20, "p", 'S', 1, 0, 1, 500))
	}
	slow := func(*Task) { time.Sleep(pumpEvery) }
	if _, err := New(open(t, root)).Scan(slow, func() error { return stop }); err != stop {
		t.Errorf("scan with a failing pump = %v, want its error", err)
	}
}

// startThread makes a goroutine hold a thread until end is closed. The thread
// then ends, if it is to and is not the main thread, or is kept by the runtime.
func startThread(end chan struct{}, exits bool) (tid uint32) {
	tids := make(chan uint32)
	go func() {
		runtime.LockOSThread()
		if !exits {
			defer runtime.UnlockOSThread()
		}
		tids <- uint32(unix.Gettid())
		<-end
	}()
	return <-tids
}

// TestStressScan: what lives all through a scan is visited, whatever else
// starts and ends meanwhile: threads of the same process, and processes.
func TestStressScan(t *testing.T) {
	end := make(chan struct{})
	var live []uint32
	for i := range 100 {
		live = append(live, startThread(end, false))
		if i%4 == 0 { // thread lists are in order of creation: leave holes that move
			short := make(chan struct{})
			startThread(short, true)
			close(short)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { // a locked goroutine that returns ends its thread
		for !stop.Load() {
			var threads sync.WaitGroup
			for range 8 {
				threads.Go(func() { runtime.LockOSThread() })
			}
			threads.Wait()
		}
	})
	wg.Go(func() {
		for !stop.Load() {
			if err := exec.Command("true").Run(); err != nil {
				t.Errorf("run true: %v", err)
				return
			}
		}
	})

	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	self := uint32(os.Getpid())
	s := New(open(t, ""))
	seen := make(map[uint32]int)
	vanished, incomplete, missing := 0, 0, 0
	for range rounds {
		clear(seen)
		stats, err := s.Scan(func(task *Task) {
			if task.TGID == self {
				seen[task.TID]++
			}
			if task.TID == 0 || task.TGID == 0 || task.State == 0 {
				t.Errorf("task %+v is not whole", *task)
			}
		}, nil)
		if err != nil {
			t.Fatalf("scan in a storm: %v (B35: what is gone is no error)", err)
		}
		vanished += stats.Vanished
		incomplete += stats.Incomplete
		for _, tid := range live {
			if seen[tid] == 0 && stats.Incomplete == 0 {
				missing++
			}
		}
		for tid, n := range seen {
			if n > 1 {
				t.Errorf("thread %d was visited %d times, want once", tid, n)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	close(end)
	if missing > 0 {
		t.Errorf("%d times a thread that lived throughout was missing, want 0", missing)
	}
	t.Logf("%d scans: %d vanished, %d incomplete", rounds, vanished, incomplete)
}

// TestStressThreads ends every second thread of a process while its threads
// are scanned, so that the kernel's walk loses its place: the others must all
// be visited. It scans the one process only, to meet the moment often.
func TestStressThreads(t *testing.T) {
	const pairs = 60
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	self := uint32(os.Getpid())
	seen := make(map[uint32]bool)
	s := New(open(t, ""))
	s.visit = func(task *Task) { seen[task.TID] = true }
	for round := range rounds {
		end := make(chan struct{})
		var live []uint32
		var brief []chan struct{}
		for range pairs {
			c := make(chan struct{})
			startThread(c, true)
			brief = append(brief, c)
			live = append(live, startThread(end, false))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, c := range brief {
				close(c)
				time.Sleep(20 * time.Microsecond)
			}
		})
		for range 4 {
			clear(seen)
			s.stats = Stats{}
			if err := s.threads(self); err != nil {
				t.Fatal(err)
			}
			for _, tid := range live {
				if tid != self && !seen[tid] && s.stats.Incomplete == 0 { // the leader is not among them
					t.Errorf("round %d: thread %d lived throughout and was not visited", round, tid)
				}
			}
		}
		wg.Wait()
		close(end)
	}
}

// TestScanPump: a pump is called in between, about once per millisecond.
func TestScanPump(t *testing.T) {
	root := t.TempDir()
	const tasks = 10 * pumpTasks
	for pid := range uint32(tasks) {
		write(t, fmt.Sprintf("%s/%d/task/%d/stat", root, pid+20, pid+20), line(pid+20, "p", 'S', 1, 0, 1, 500))
	}
	visited, longest, last := 0, 0, 0
	slow := func(*Task) {
		visited++
		time.Sleep(pumpEvery / pumpTasks)
	}
	pump := func() error {
		longest, last = max(longest, visited-last), visited
		return nil
	}
	if _, err := New(open(t, root)).Scan(slow, pump); err != nil {
		t.Fatal(err)
	}
	if longest == 0 || longest > 2*pumpTasks {
		t.Errorf("the longest stretch without a pump was %d tasks of %d, want at most %d", longest, visited, 2*pumpTasks)
	}
}

func TestScanAllocs(t *testing.T) {
	s := New(open(t, ""))
	n := 0
	visit := func(*Task) { n++ }
	pump := func() error { return nil }
	if _, err := s.Scan(visit, pump); err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(20, func() {
		if _, err := s.Scan(visit, pump); err != nil {
			t.Fatal(err)
		}
	}); got > 0 {
		t.Errorf("a scan allocates %v times, want 0", got)
	}
}

// BenchmarkScan scans this machine, besides the tasks that are there with one
// process of many threads.
func BenchmarkScan(b *testing.B) {
	for _, threads := range []int{0, 1000} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			end := make(chan struct{})
			defer close(end)
			for range threads {
				startThread(end, false)
			}
			s := New(open(b, ""))
			tasks := 0
			for b.Loop() {
				stats, err := s.Scan(func(*Task) {}, nil)
				if err != nil {
					b.Fatal(err)
				}
				tasks += stats.Threads
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tasks), "ns/task")
		})
	}
}

func ExampleScanner() {
	proc, err := procfile.Open("/proc")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proc.Close()
	running := 0
	stats, err := New(proc).Scan(func(t *Task) {
		if t.State == 'R' {
			running++
		}
	}, nil)
	fmt.Println(err, stats.Threads >= stats.Processes, running > 0)
	// Output: <nil> true true
}
