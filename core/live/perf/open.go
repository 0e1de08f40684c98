package perf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MissingError says that the kernel lacks a feature that the source needs.
type MissingError struct {
	Feature string // as the kernel calls it
	Since   string // lowest kernel version that has it
	Err     error  // what the kernel answered
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the kernel lacks %s (in Linux since %s, where it is configured): %v", e.Feature, e.Since, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// dataBytes rounds the wanted size of a ring up to a power of two of pages.
func dataBytes(want int) (int, error) {
	if want < 0 || want > ringBytesMax {
		return 0, fmt.Errorf("ring of %d bytes: must be between 1 and %d", want, ringBytesMax)
	}
	if want == 0 {
		want = ringBytesDefault
	}
	size := os.Getpagesize()
	for size < want {
		size *= 2
	}
	return size, nil
}

// openRing opens the event of one CPU and maps its ring.
func openRing(cpu, ringBytes int) (*ring, error) {
	fd, err := openEvent(cpu, ringBytes)
	if err != nil {
		return nil, explainOpen(cpu, err)
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, page+ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, explainMap(cpu, ringBytes, err)
	}
	r := newRing(cpu, fd, (*unix.PerfEventMmapPage)(unsafe.Pointer(unsafe.SliceData(mem))), mem[page:])
	r.mem = mem
	return r, nil
}

// close unmaps the ring and closes its event.
func (r *ring) close() error {
	return errors.Join(unix.Munmap(r.mem), unix.Close(r.fd))
}

// openEvent opens an event that counts nothing: a carrier of records about
// tasks, for every task that runs on cpu.
func openEvent(cpu, ringBytes int) (fd int, err error) {
	attr := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU,
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_LOST,
		Bits: unix.PerfBitTask | unix.PerfBitComm | unix.PerfBitCommExec |
			unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitWatermark,
		Wakeup:  uint32(ringBytes / 2),
		Clockid: unix.CLOCK_MONOTONIC,
	}
	fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.EINVAL) {
		attr.Read_format &^= unix.PERF_FORMAT_LOST // before Linux 6.0
		fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	return fd, err
}

func explainOpen(cpu int, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("open perf event on cpu %d: %w: kernel.perf_event_paranoid=%s needs CAP_PERFMON: run as root or `setcap cap_perfmon+ep` on the program",
			cpu, err, paranoid())
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		err = &MissingError{Feature: "perf events", Since: "4.1", Err: err}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.E2BIG):
		err = &MissingError{Feature: "perf events on CLOCK_MONOTONIC", Since: "4.1", Err: err}
	}
	return fmt.Errorf("open perf event on cpu %d: %w", cpu, err)
}

func explainMap(cpu, ringBytes int, err error) error {
	err = fmt.Errorf("map perf ring of %d KiB on cpu %d: %w", ringBytes/1024, cpu, err)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w: too much locked memory: ask for smaller rings, raise kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK, or grant CAP_IPC_LOCK", err)
	}
	return err
}

// paranoid returns kernel.perf_event_paranoid, or "?".
func paranoid() string {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return "?"
	}
	return string(bytes.TrimSpace(b))
}
