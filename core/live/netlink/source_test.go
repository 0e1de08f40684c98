package netlink

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/live"
)

// TestMain also is the child that opens a source in namespaces of its own.
func TestMain(m *testing.M) {
	if os.Getenv("KPIDD_NETLINK_CHILD") == "open" {
		s, err := Open(Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		s.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// open opens a source, or skips where the proc connector does not speak.
func open(t testing.TB, opts Options) *Source {
	t.Helper()
	s, err := Open(opts)
	if errors.Is(err, errSilent) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Skipf("no proc connector: %v", err)
	}
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// collect drains until done says so, or for ten seconds.
func collect(t *testing.T, s *Source, done func(e live.Event) bool) {
	t.Helper()
	buf := make([]live.Event, 37)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err := s.Wait(100 * time.Millisecond); err != nil {
			t.Fatalf("wait: %v", err)
		}
		for more := true; more; {
			var n int
			var err error
			n, more, err = s.Drain(buf)
			if err != nil {
				t.Fatalf("drain: %v", err)
			}
			for _, e := range buf[:n] {
				if done(e) {
					return
				}
			}
		}
	}
	t.Fatal("the awaited events did not come within 10 s")
}

func TestProcessEvents(t *testing.T) {
	s := open(t, Options{})
	cmd := exec.Command("sh", "-c", "exit 3")
	before := nowNs()
	var exitErr *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exitErr) || exitErr.ExitCode() != 3 {
		t.Fatalf("sh -c 'exit 3' gave %v, want exit code 3", err)
	}
	pid := uint32(cmd.Process.Pid)

	var got []live.Event
	last := before
	collect(t, s, func(e live.Event) bool {
		if e.PID != pid || e.TID != pid {
			return false
		}
		if e.TimeNs < last {
			t.Errorf("event %+v at %d ns, want at or after %d", e, e.TimeNs, last)
		}
		last, e.TimeNs = e.TimeNs, 0
		got = append(got, e)
		return e.Kind == live.Exit
	})
	want := []live.Event{
		{Kind: live.Fork, PID: pid, TID: pid, PPID: uint32(os.Getpid()), Flags: live.RealParent},
		{Kind: live.Exec, PID: pid, TID: pid},
		{Kind: live.Exit, PID: pid, TID: pid, Code: 3 << 8, Flags: live.HasCode},
	}
	if len(got) != len(want) {
		t.Fatalf("events of the child: %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d = %+v, want %+v", i, got[i], want[i])
		}
	}
	if now := nowNs(); last > now {
		t.Errorf("last event at %d ns, want before %d", last, now)
	}
}

// onOwnThread runs f on a thread that ends with it, and returns its number.
func onOwnThread(f func()) (tid uint32) {
	tids := make(chan uint32)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread would not end
			run2 := make(chan struct{})
			go func() { defer close(run2); run() }()
			<-run2
			runtime.UnlockOSThread()
			return
		}
		f()
		tids <- uint32(unix.Gettid())
	}
	go run()
	return <-tids
}

// TestThreadEvents renames a thread and lets it end: its exit is told with its
// own number, never as that of the process.
func TestThreadEvents(t *testing.T) {
	s := open(t, Options{})
	tid := onOwnThread(func() {
		name := &[16]byte{'t', ' ', ')', '\n', 0xff}
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0); err != nil {
			t.Errorf("rename thread: %v", err)
		}
		runtime.KeepAlive(name)
	})
	var comm live.Event
	collect(t, s, func(e live.Event) bool {
		if e.TID != tid {
			return false
		}
		if e.Kind == live.Comm {
			comm = e
		}
		return e.Kind == live.Exit
	})
	comm.TimeNs = 0
	want := live.Event{Kind: live.Comm, PID: uint32(os.Getpid()), TID: tid, Flags: live.HasComm, Comm: [16]byte{'t', ' ', ')', '\n', 0xff}}
	if comm != want {
		t.Errorf("rename = %+v, want %+v", comm, want)
	}
}

func TestWake(t *testing.T) {
	s := open(t, Options{})
	s.polls[0].Fd = -1 // poll ignores it: no event of somebody else ends a Wait
	for _, busy := range []bool{false, true} {
		s.busy = busy
		s.Wake()
		s.Wake()
		start := time.Now()
		if err := s.Wait(10 * time.Second); err != nil {
			t.Fatalf("wait: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("busy=%v: Wait after Wake took %v, want to return at once", busy, took)
		}
		start = time.Now()
		if err := s.Wait(20 * time.Millisecond); err != nil {
			t.Fatalf("wait: %v", err)
		}
		if took := time.Since(start); took < 20*time.Millisecond {
			t.Errorf("busy=%v: Wait without Wake took %v, want 20ms: both wake-ups were meant for one Wait", busy, took)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	s.Wake() // does no harm to whoever has the descriptor's number now
}

// TestPause: a flow of events is gathered, a single wait for what is there is
// not held up.
func TestPause(t *testing.T) {
	s := open(t, Options{})
	if s.ringSize < pauseBufMin {
		t.Skipf("a receive buffer of %d bytes is too small for pauses; net.core.rmem_max gives no more", s.ringSize)
	}
	fork := func(n int) {
		t.Helper()
		for range n {
			if err := forkOnce(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait := func(timeout time.Duration) time.Duration {
		t.Helper()
		start := time.Now()
		if err := s.Wait(timeout); err != nil {
			t.Fatalf("wait: %v", err)
		}
		return time.Since(start)
	}
	drainAll(t, s)
	fork(busyEvents)
	if took := wait(time.Second); took < pauseQuiet {
		t.Errorf("Wait with an event there took %v, want at least %v", took, pauseQuiet)
	}
	if drainAll(t, s); !s.busy {
		t.Errorf("a round of %d forks did not make the source busy", busyEvents)
	}
	fork(1)
	if took := wait(time.Second); took < pauseBusy {
		t.Errorf("Wait while busy took %v, want at least %v", took, pauseBusy)
	}
	for range 100 { // the machine may preempt the test now and then
		if took := wait(0); took < pauseQuiet {
			return
		}
	}
	t.Errorf("Wait(0) never took less than %v", pauseQuiet)
}

func drainAll(t testing.TB, s *Source) (events []live.Event) {
	t.Helper()
	buf := make([]live.Event, 256)
	for more := true; more; {
		var n int
		var err error
		if n, more, err = s.Drain(buf); err != nil {
			t.Fatalf("drain: %v", err)
		}
		events = append(events, buf[:n]...)
	}
	return events
}

// forkOnEachCPU has every CPU that the process may use send an event.
func forkOnEachCPU(t *testing.T) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the affinity dies with the thread
		done <- func() error {
			var all unix.CPUSet
			if err := unix.SchedGetaffinity(0, &all); err != nil {
				return err
			}
			for cpu := range cpusMax {
				if !all.IsSet(cpu) {
					continue
				}
				var one unix.CPUSet
				one.Set(cpu)
				if err := unix.SchedSetaffinity(0, &one); err != nil {
					return err
				}
				if err := forkOnce(); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Fatalf("fork on each CPU: %v", err)
	}
}

// TestOverrun lets a small buffer run over: the stream must say so, count what
// it lost, and go on.
func TestOverrun(t *testing.T) {
	const forks = 2000
	s := open(t, Options{RecvBuf: 1 << 16})
	forkOnEachCPU(t)
	drainAll(t, s)
	for range forks {
		if err := forkOnce(); err != nil {
			t.Fatal(err)
		}
	}
	self := uint32(os.Getpid())
	var sent, lost uint64 // forks of this process that came, and all that did not
	unknown, atLoss := 0, uint64(0)
	count := func(events []live.Event) {
		for _, e := range events {
			switch {
			case e.Kind == live.Lost:
				if lost == 0 && unknown == 0 {
					atLoss = sent
				}
				if e.Lost == 0 {
					unknown++
				}
				lost += e.Lost
			case e.Kind == live.Fork && e.PPID == self && e.TID == e.PID:
				sent++
			}
		}
	}
	count(drainAll(t, s))
	if unknown == 0 && lost == 0 {
		t.Fatal("the buffer ran over, and no Lost event came")
	}
	if atLoss == 0 {
		t.Error("the loss was told before the events that were queued ahead of it")
	}
	// The numbers come as each CPU speaks again; where something else forks
	// much, that can be lost once more.
	before := sent
	for range 50 {
		forkOnEachCPU(t)
		if count(drainAll(t, s)); sent > before && lost+2*sent >= 2*forks {
			break
		}
	}
	if sent == before {
		t.Error("no event came after the overrun")
	}
	if lost+2*sent < 2*forks {
		t.Errorf("lost %d, and %d forks came, want 2 × forks + lost ≥ %d", lost, sent, 2*forks)
	}
	t.Logf("buffer of %d bytes: %d forks came, %d events lost, %d losses of unknown size", s.ringSize, sent, lost, unknown)
}

// TestPrivilegedNamespaces: B66. Where the connector is silent, Open must say so, also
// while another process, this one, listens on the host.
func TestPrivilegedNamespaces(t *testing.T) {
	open(t, Options{})
	tests := []struct {
		name  string
		flags uintptr
		want  string
	}{
		{"network", syscall.CLONE_NEWNET, "network namespace"},
		{"user", syscall.CLONE_NEWUSER, "silent"},
		{"pid", syscall.CLONE_NEWPID, "silent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "KPIDD_NETLINK_CHILD=open")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: tt.flags}
			out, err := cmd.Output()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
				t.Skipf("no new %s namespace: %v", tt.name, err)
			}
			var exitErr *exec.ExitError
			if !errors.As(err, &exitErr) || exitErr.ExitCode() != 3 {
				t.Fatalf("open in a new %s namespace: %v, output %q, want it refused", tt.name, err, out)
			}
			if !strings.Contains(string(out), tt.want) || strings.Count(string(out), "\n") != 1 {
				t.Errorf("error = %q, want one line with %q", out, tt.want)
			}
		})
	}
}

func TestDrainAllocs(t *testing.T) {
	s := open(t, Options{})
	buf := make([]live.Event, 64)
	got := testing.AllocsPerRun(100, func() {
		if err := s.Wait(0); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			_, more, _ = s.Drain(buf)
		}
	})
	if got != 0 {
		t.Errorf("Wait and Drain allocate %v times, want 0", got)
	}
}

// BenchmarkStep decodes and checks a full batch, as Drain does after the
// system call.
func BenchmarkStep(b *testing.B) {
	s := &Source{batch: newBatch()}
	var e live.Event
	var seq uint32
	for b.Loop() {
		s.batch.len, s.batch.next = batchLen, 0
		for i := range batchLen {
			d := datagramInto(s.batch.bytes[i][:0], seq)
			s.batch.headers[i].len = uint32(len(d))
			seq++
		}
		for !s.batch.empty() {
			if !s.step(&e) {
				b.Fatal("a datagram gave no event")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batchLen), "ns/event")
}

var benchDatagram = datagram(whatFork, 0, 0, 9, 11, 10, 20, 20)

// datagramInto writes a fork datagram with the given number.
func datagramInto(b []byte, seq uint32) []byte {
	b = append(b, benchDatagram...)
	native.PutUint32(b[offCn+8:], seq)
	return b
}

func ExampleOpen() {
	s, err := Open(Options{})
	if err != nil {
		fmt.Println(err) // says what to do
		return
	}
	defer s.Close()
	buf := make([]live.Event, 1024)
	for s.Wait(time.Second) == nil {
		for more := true; more; {
			var n int
			if n, more, err = s.Drain(buf); err != nil {
				return
			}
			for _, e := range buf[:n] {
				fmt.Println(e.Kind, e.PID, e.TID)
			}
		}
	}
}
