package perf

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller sleeps until a file descriptor is ready or somebody calls wake. wake
// may be called by any goroutine, at any time; everything else belongs to one.
type poller struct {
	epfd   int
	events [16]unix.EpollEvent
	pause  unix.Timespec // argument of epoll_pwait2, here so that no call allocates it
	coarse bool          // no epoll_pwait2 (before Linux 5.11): milliseconds

	mu     sync.Mutex
	wakefd int // stored under mu by the owner; others load it under mu; -1 once closed
}

func newPoller() (*poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	p := &poller{epfd: epfd, wakefd: wakefd}
	if err := p.add(wakefd, unix.EPOLLIN); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// add watches fd. Closing fd ends that.
func (p *poller) add(fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("add to epoll: %w", err)
	}
	return nil
}

// wait sleeps for at most timeout and returns the events that ended it. A
// signal ends it with none.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	n, err := p.epoll(timeout)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait in epoll: %w", err)
	}
	return p.events[:n], nil
}

func (p *poller) epoll(timeout time.Duration) (int, error) {
	if !p.coarse {
		p.pause = unix.NsecToTimespec(int64(timeout))
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epfd),
			uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)),
			uintptr(unsafe.Pointer(&p.pause)), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.ENOSYS:
			p.coarse = true
		default:
			return 0, errno
		}
	}
	ms := (timeout + time.Millisecond - 1) / time.Millisecond
	return unix.EpollWait(p.epfd, p.events[:], int(min(ms, 1<<30)))
}

// wake makes a running or the next wait return.
func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wakefd < 0 {
		return
	}
	one := [8]byte{1} // any number does
	// The counter can only refuse when it is full; then a wake-up is pending.
	_, _ = unix.Write(p.wakefd, one[:])
}

// clearWake takes back what wake has left.
func (p *poller) clearWake() {
	var b [8]byte
	_, _ = unix.Read(p.wakefd, b[:]) // EAGAIN: there was none
}

func (p *poller) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wakefd < 0 {
		return os.ErrClosed
	}
	err := errors.Join(unix.Close(p.wakefd), unix.Close(p.epfd))
	p.wakefd = -1
	return err
}
