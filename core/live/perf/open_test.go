package perf

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDataBytes(t *testing.T) {
	page := os.Getpagesize()
	tests := []struct{ want, got int }{
		{0, 2 << 20},
		{1, page},
		{page, page},
		{page + 1, 2 * page},
		{5 * page, 8 * page},
		{1 << 30, 1 << 30},
	}
	for _, tt := range tests {
		if got, err := dataBytes(tt.want); err != nil || got != tt.got {
			t.Errorf("dataBytes(%d) = %d, %v; want %d", tt.want, got, err, tt.got)
		}
	}
	for _, bad := range []int{-1, 1<<30 + 1} {
		if got, err := dataBytes(bad); err == nil {
			t.Errorf("dataBytes(%d) = %d, want an error", bad, got)
		}
	}
}

func TestExplain(t *testing.T) {
	tests := []struct {
		err     error
		errno   unix.Errno
		missing bool
		says    []string
	}{
		{explainOpen(1, unix.EACCES), unix.EACCES, false, []string{"cpu 1", "kernel.perf_event_paranoid=", "CAP_PERFMON", "setcap"}},
		{explainOpen(1, unix.EPERM), unix.EPERM, false, []string{"CAP_PERFMON"}},
		{explainOpen(1, unix.ENOSYS), unix.ENOSYS, true, []string{"kernel lacks perf events", "4.1"}},
		{explainOpen(1, unix.ENOENT), unix.ENOENT, true, []string{"kernel lacks perf events"}},
		{explainOpen(1, unix.EINVAL), unix.EINVAL, true, []string{"CLOCK_MONOTONIC"}},
		{explainOpen(1, unix.EMFILE), unix.EMFILE, false, []string{"open perf event on cpu 1"}},
		{explainMap(1, 2<<20, unix.EPERM), unix.EPERM, false, []string{"2048 KiB", "cpu 1", "kernel.perf_event_mlock_kb", "CAP_IPC_LOCK"}},
		{explainMap(1, 2<<20, unix.ENOMEM), unix.ENOMEM, false, []string{"RLIMIT_MEMLOCK"}},
		{explainMap(1, 2<<20, unix.EINVAL), unix.EINVAL, false, []string{"map perf ring"}},
	}
	for _, tt := range tests {
		text := tt.err.Error()
		if !errors.Is(tt.err, tt.errno) {
			t.Errorf("%q does not wrap %v", text, tt.errno)
		}
		var missing *MissingError
		if got := errors.As(tt.err, &missing); got != tt.missing {
			t.Errorf("%q: MissingError %t, want %t", text, got, tt.missing)
		}
		for _, s := range tt.says {
			if !strings.Contains(text, s) {
				t.Errorf("%q does not say %q", text, s)
			}
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%q is more than one line", text)
		}
	}
}

// TestOpenDenied opens without any capability.
func TestOpenDenied(t *testing.T) {
	done := make(chan error)
	go func() {
		// The thread gives its capabilities away and ends with the goroutine.
		runtime.LockOSThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			done <- err
			return
		}
		s, err := Open(Options{RingBytes: 1})
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	err := <-done
	if err == nil {
		t.Skip("perf events are open to everybody here")
	}
	var missing *MissingError
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_PERFMON") {
		t.Errorf("got %q, want one that names CAP_PERFMON", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want one line", err)
	}
}
