package perf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/internal/privileged"
	"golang.org/x/sys/unix"
)

func open(t *testing.T, o Options) *Source {
	t.Helper()
	s, err := Open(o)
	var missing *MissingError
	if errors.As(err, &missing) {
		privileged.Missing(t, missing.Feature)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// round drains one round.
func round(t *testing.T, s *Source) (events []live.Event) {
	t.Helper()
	var buf [256]live.Event
	for {
		n, more, err := s.Drain(buf[:])
		events = append(events, buf[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return events
		}
	}
}

// child runs a program that exits at once, waits for it and returns its pid.
func child(t *testing.T) uint32 {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil || status != 0 {
		t.Fatalf("child %d: status %d, %v", pid, status, err)
	}
	return uint32(pid)
}

// life is what should be seen of one child of this test.
func life(pid uint32) []string {
	return []string{
		fmt.Sprintf("fork %d by %d", pid, os.Getpid()),
		fmt.Sprintf("exec %d true", pid),
		fmt.Sprintf("exit %d", pid),
	}
}

// lives renders the events of some processes in the order of the stream.
func lives(events []live.Event, pids map[uint32]bool) (got []string) {
	for _, ev := range events {
		if !pids[ev.PID] || ev.TID != ev.PID {
			continue
		}
		switch ev.Kind {
		case live.Fork:
			got = append(got, fmt.Sprintf("fork %d by %d", ev.PID, ev.PPID))
		case live.Exec:
			got = append(got, fmt.Sprintf("exec %d %s", ev.PID, unix.ByteSliceToString(ev.Comm[:])))
		case live.Exit:
			got = append(got, fmt.Sprintf("exit %d", ev.PID))
		}
	}
	return got
}

func compareLives(t *testing.T, events []live.Event, pids ...uint32) {
	t.Helper()
	set := map[uint32]bool{}
	var want []string
	for _, pid := range pids {
		if set[pid] {
			t.Skipf("pid %d was used twice in this test", pid)
		}
		set[pid] = true
		want = append(want, life(pid)...)
	}
	var lost uint64
	for _, ev := range events {
		lost += ev.Lost
	}
	if lost != 0 {
		t.Fatalf("%d records lost: the machine is too busy for this test", lost)
	}
	got := lives(events, set)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("event %d of %d, want %d:\n got %q\nwant %q",
				i, len(got), len(want), got[min(i, len(got)):min(i+4, len(got))], want[min(i, len(want)):min(i+4, len(want))])
		}
	}
}

// TestPrivilegedChildren: 1,000 children, one after the other, on all CPUs. The
// stream must tell each life in order and one life after the other, for each
// fork was caused by the exit before.
func TestPrivilegedChildren(t *testing.T) {
	privileged.Hold(t)
	s := open(t, Options{})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pids []uint32
	var events []live.Event
	for i := range 1000 {
		pids = append(pids, child(t))
		if i%7 == 0 {
			events = append(events, round(t, s)...)
		}
	}
	events = append(events, round(t, s)...)
	compareLives(t, events, pids...)
	for _, ev := range events {
		if ev.Kind == live.Lost || ev.Kind == live.Blind {
			t.Errorf("got %+v, want no gap", ev)
		}
		if ev.Kind == live.Fork && slices.Contains(pids, ev.PID) && ev.PTID != uint32(unix.Gettid()) {
			t.Errorf("got %+v, want it created by task %d", ev, unix.Gettid())
		}
	}
}

// TestPrivilegedThread: a thread is born, renamed and ends.
func TestPrivilegedThread(t *testing.T) {
	privileged.Hold(t)
	s := open(t, Options{})
	tid := make(chan uint32)
	renamed := func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		file := fmt.Sprintf("/proc/self/task/%d/comm", unix.Gettid())
		if err := os.WriteFile(file, []byte("kpidd-renamed"), 0); err != nil {
			t.Error(err)
		}
		tid <- uint32(unix.Gettid())
	}
	go renamed()
	want := <-tid
	if want == uint32(os.Getpid()) {
		go renamed() // the first thread is kept by the runtime; now it is taken
		want = <-tid
	}
	var seen string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, ev := range round(t, s) {
			if ev.TID != want {
				continue
			}
			if ev.PID != uint32(os.Getpid()) {
				t.Errorf("got %+v, want the group %d", ev, os.Getpid())
			}
			switch {
			case ev.Kind == live.Comm && ev.Comm == comm("kpidd-renamed"):
				seen += "renamed "
			case ev.Kind == live.Exit:
				seen += "ended "
			}
		}
		if seen == "renamed ended " {
			return
		}
	}
	t.Errorf("got %q, want the thread renamed and ended", seen)
}

// TestPrivilegedLoss overruns rings of one page. All losses must be told by the
// next round, although no record follows on a quiet CPU.
func TestPrivilegedLoss(t *testing.T) {
	privileged.Hold(t)
	s := open(t, Options{RingBytes: 1})
	var told, kernel uint64
	for storm := range 5 {
		var events []live.Event
		for range 200 {
			child(t)
		}
		// Others on this machine make records too: what is lost between the
		// round and the reading of the count is told by the next round.
		for range 20 {
			events = round(t, s)
			for _, ev := range events {
				if ev.Kind == live.Lost {
					told += ev.Lost
				}
			}
			kernel = 0
			for _, l := range s.LostByRing() {
				if l.Told > l.Kernel {
					t.Fatalf("cpu %d: told %d, the kernel lost %d", l.CPU, l.Told, l.Kernel)
				}
				kernel += l.Kernel
			}
			if told == kernel {
				break
			}
		}
		if told != kernel || kernel == 0 {
			t.Fatalf("storm %d: told %d lost records, the kernel counts %d", storm, told, kernel)
		}
	}
}

func TestPrivilegedWait(t *testing.T) {
	privileged.Hold(t)
	s := open(t, Options{RingBytes: 64 << 10})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	took := func(timeout time.Duration) time.Duration {
		start := time.Now()
		if err := s.Wait(timeout); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	round(t, s)
	if d := took(20 * time.Millisecond); d < 20*time.Millisecond || d > 2*time.Second {
		t.Errorf("Wait(20ms) took %v", d)
	}
	s.Wake()
	if d := took(10 * time.Second); d > time.Second {
		t.Errorf("Wait after Wake took %v", d)
	}
	if d := took(20 * time.Millisecond); d < 20*time.Millisecond {
		t.Errorf("second Wait after one Wake took %v, want 20ms", d)
	}
	time.AfterFunc(20*time.Millisecond, s.Wake)
	if d := took(10 * time.Second); d > 5*time.Second {
		t.Errorf("Wait with a Wake on the way took %v", d)
	}
	// Rings that are more than half full wake once, and not again and again
	// while nobody drains them.
	for range 3000 {
		if pid, err := syscall.ForkExec("/kpidd-no-such-program", nil, nil); err == nil {
			t.Fatalf("child %d runs a program that does not exist", pid)
		}
	}
	if d := took(10 * time.Second); d > time.Second {
		t.Errorf("Wait beside full rings took %v", d)
	}
	for wakeups := 1; took(50*time.Millisecond) < 50*time.Millisecond; wakeups++ {
		if wakeups > 2*len(s.merge.rings) {
			t.Fatalf("%d wake-ups by rings that nobody drains", wakeups)
		}
	}
}

func TestPrivilegedAllocs(t *testing.T) {
	privileged.Hold(t)
	s := open(t, Options{})
	buf := make([]live.Event, 64)
	got := testing.AllocsPerRun(100, func() {
		if err := s.Wait(100 * time.Microsecond); err != nil {
			t.Fatal(err)
		}
		s.Wake()
		for more := true; more; {
			var err error
			if _, more, err = s.Drain(buf); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations per Wait and Drain, want 0", got)
	}
}

func TestPrivilegedClose(t *testing.T) {
	privileged.Hold(t)
	before := openFiles(t)
	s := open(t, Options{})
	if got, want := s.Info(), (live.Info{Name: "perf", LossKind: "exact", Tells: live.TellsExecComm | live.TellsComm,
		RingSize: int64(len(s.merge.rings)) * 2 << 20}); got != want {
		t.Errorf("Info() = %+v, want %+v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("got %d open files after Close, want %d", after, before)
	}
	s.Wake()
	if err := s.Wait(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait after Close: got %v, want os.ErrClosed", err)
	}
	if _, _, err := s.Drain(make([]live.Event, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Drain after Close: got %v, want os.ErrClosed", err)
	}
	if err := s.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: got %v, want os.ErrClosed", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

const cpu1Online = "/sys/devices/system/cpu/cpu1/online"

func setCPU1(t *testing.T, state string) {
	t.Helper()
	if err := os.WriteFile(cpu1Online, []byte(state), 0); err != nil {
		t.Fatal(err)
	}
}

// TestPrivilegedHotplug takes CPU 1 offline and back, with and without the
// kernel telling of it, and runs children before, between and after, on CPU 1
// where it is online.
func TestPrivilegedHotplug(t *testing.T) {
	privileged.Hold(t)
	if b, err := os.ReadFile(cpu1Online); err != nil || string(b) != "1\n" {
		privileged.Missing(t, "cpu-hotplug")
	}
	t.Cleanup(func() { setCPU1(t, "1") })
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("told=%t", told), func(t *testing.T) { hotplug(t, told) })
	}
}

func hotplug(t *testing.T, told bool) {
	s := open(t, Options{})
	if !told {
		if err := unix.Close(s.uevents); err != nil {
			t.Fatal(err)
		}
		s.uevents = -1
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, cpu1 unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
	}()
	cpu1.Set(1)
	pin := func(set *unix.CPUSet) {
		if err := unix.SchedSetaffinity(0, set); err != nil {
			t.Fatal(err)
		}
	}
	var events []live.Event
	follow := func(rings int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			if err := s.Wait(50 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
			events = append(events, round(t, s)...)
			if len(s.merge.rings) == rings && !s.recheck {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("got %d rings, want %d", len(s.merge.rings), rings)
			}
		}
	}
	online := len(s.merge.rings)
	children := func(drain bool) (pids []uint32) {
		for range 20 {
			pids = append(pids, child(t))
			if drain {
				events = append(events, round(t, s)...)
			}
		}
		return pids
	}

	pin(&cpu1)
	pids := children(false)
	pin(&all)
	setCPU1(t, "0") // what its ring still holds must come
	pids = append(pids, children(true)...)
	follow(online - 1)
	pids = append(pids, children(true)...)
	setCPU1(t, "1")
	follow(online)
	pin(&cpu1)
	pids = append(pids, children(true)...)
	pin(&all)
	events = append(events, round(t, s)...)
	compareLives(t, events, pids...)
	if got := blinds(events); got != 1 {
		t.Errorf("got %d Blind events, want 1", got)
	}

	// Off and on again at once: the ring is dead although the list of CPUs
	// looks as before.
	setCPU1(t, "0")
	setCPU1(t, "1")
	for deadline := time.Now().Add(10 * time.Second); blinds(events) < 2; {
		if err := s.Wait(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		events = append(events, round(t, s)...)
		if time.Now().After(deadline) {
			t.Fatal("CPU 1 went and came back unnoticed")
		}
	}
	events = nil
	pin(&cpu1)
	pids = children(true)
	pin(&all)
	compareLives(t, append(events, round(t, s)...), pids...)

	// A CPU gone leaves no wake-up behind that would come again and again. One
	// for half a ring may come meanwhile.
	round(t, s)
	for i := 0; ; i++ {
		start := time.Now()
		if err := s.Wait(20 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) >= 20*time.Millisecond {
			return
		}
		if i == 10 {
			t.Fatalf("%d Waits of 20ms returned early", i+1)
		}
	}
}

func blinds(events []live.Event) (n int) {
	for _, ev := range events {
		if ev.Kind == live.Blind && ev.TimeNs != 0 {
			n++
		}
	}
	return n
}
