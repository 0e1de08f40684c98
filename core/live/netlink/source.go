package netlink

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/live"
)

// Options configure Open. The zero value is what the daemon uses.
type Options struct {
	// RecvBuf is the size asked for the socket's buffer, in bytes; default
	// 32 MiB, which holds 80,000 events. The kernel doubles it for its own
	// needs. Without CAP_NET_ADMIN it is cut to net.core.rmem_max.
	RecvBuf int
}

const (
	recvBufDefault = 32 << 20

	// A wake-up costs both sides more than the event itself, so the reader
	// sleeps for a while without listening to the socket: after a wake-up for
	// pauseQuiet, and as long as a round brings busyEvents or more for
	// pauseBusy. A buffer below pauseBufMin would run over meanwhile.
	pauseQuiet  = time.Millisecond
	pauseBusy   = 5 * time.Millisecond
	pauseBufMin = 4 << 20
	busyEvents  = 8
)

// Source is the proc connector as a live.Source: a netlink socket in the
// connector's multicast group. Make it with Open; it has no useful zero value
// and must not be copied.
//
// Invariants:
//   - I1: an event is delivered only if the kernel sent it and it decoded whole.
//   - I2: what the kernel dropped is told by Lost events, no later than where
//     the queue is next found empty; loss.go says where and with which number.
//   - I3: a round of Drain ends, at the latest after the batch that brings an
//     event newer than the round's start.
//
// Access: Open, Wait, Drain and Close belong to one goroutine; Wake may be
// called by any, also after Close. wakeMu guards wakeFD; the other fields are
// the owner's. There is no lock-free ordering to prove.
//
// Order of events: the kernel puts a datagram into the one queue while it is
// still inside the fork, exec or exit. What depends on that comes later in the
// queue, from whichever CPU, but for these exceptions:
//   - the exit of a task is sent after its parent was told, so the parent may
//     reap it, and its number be forked again, before the exit is queued;
//   - for the same reason the exit of a leader can come after the exec of the
//     thread that took its place; it then bears an older TimeNs than the exec,
//     or the former number of the exec'ing thread;
//   - the other threads that an exec kills can be told to exit after it.
//
// TimeNs is taken before the datagram is queued: from one CPU to the next it
// may step back by the time that this takes.
//
// Staleness: what happened since the last round is not known. Lifetime: an
// Event refers to nothing of the source. Progress: Drain never blocks, and
// bounds its work by I3.
type Source struct {
	fd       int
	ringSize int64
	batch    *batch
	losses   losses
	msg      message // the datagram at hand

	roundNs     uint64 // start of the running round, CLOCK_MONOTONIC; 0 none
	roundEvents int    // delivered in it
	newestNs    uint64 // newest TimeNs seen
	busy        bool   // the last round delivered many

	polls [2]unix.PollFd // socket, wake

	wakeMu sync.Mutex
	wakeFD int // eventfd; -1 after Close
}

var _ live.Source = (*Source)(nil)

// Open subscribes to the proc connector and waits until the kernel has shown
// that it speaks (see selfTest). It needs no privilege since Linux 6.6, but
// the initial PID, user and network namespaces. The event stream begins
// before Open returns.
func Open(opts Options) (*Source, error) {
	s := &Source{fd: -1, wakeFD: -1, batch: newBatch()}
	if err := s.open(opts); err != nil {
		s.Close()
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return s, nil
}

func (s *Source) open(opts Options) (err error) {
	const flags = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	s.fd, err = unix.Socket(unix.AF_NETLINK, flags, unix.NETLINK_CONNECTOR)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("open a connector socket: %w (the kernel lacks CONFIG_CONNECTOR; use another source)", err)
	}
	if err != nil {
		return fmt.Errorf("open a connector socket: %w", err)
	}
	if err := s.setOptions(opts); err != nil {
		return err
	}
	err = unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: cnIdxProc})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("join the proc connector's group: %w (needs CAP_NET_ADMIN before Linux 6.6: run as root)", err)
	}
	if err != nil {
		return fmt.Errorf("join the proc connector's group: %w", err)
	}
	if s.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("make an eventfd: %w", err)
	}
	s.polls[0] = unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN}
	s.polls[1] = unix.PollFd{Fd: int32(s.wakeFD), Events: unix.POLLIN}
	return s.selfTest()
}

// setOptions sets the size of the buffer, and has the sender told of datagrams
// dropped here: there are kernels in which the connector takes one that nobody
// received for a sign that nobody listens, and stops sending for good.
func (s *Source) setOptions(opts Options) error {
	size := opts.RecvBuf
	if size <= 0 {
		size = recvBufDefault
	}
	err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	}
	if err != nil {
		return fmt.Errorf("set the receive buffer to %d bytes: %w", size, err)
	}
	got, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return fmt.Errorf("read the size of the receive buffer: %w", err)
	}
	s.ringSize = int64(got)
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_BROADCAST_ERROR, 1); err != nil {
		return fmt.Errorf("ask for broadcast errors: %w", err)
	}
	return nil
}

// Info implements live.Source. The loss kind is "detected": the number is
// exact once every CPU has spoken before and after the loss, and too small
// until then.
func (s *Source) Info() live.Info {
	return live.Info{
		Name:     "netlink",
		LossKind: "detected",
		Tells:    live.TellsComm | live.TellsCode | live.TellsParent,
		RingSize: s.ringSize,
	}
}

// Drain implements live.Source. It allocates nothing.
func (s *Source) Drain(buf []live.Event) (n int, more bool, err error) {
	if s.roundNs == 0 {
		s.roundNs, s.roundEvents = nowNs(), 0
	}
	for n < len(buf) {
		if !s.batch.empty() {
			if s.step(&buf[n]) {
				n++
			}
			continue
		}
		if s.newestNs > s.roundNs {
			s.endRound(n)
			return n, false, nil
		}
		switch errno := s.batch.receive(s.fd); errno {
		case 0, unix.EINTR:
		case unix.ENOBUFS:
			s.losses.overrun(nowNs())
		case unix.EAGAIN:
			if s.losses.dry(nowNs(), &buf[n]) {
				n++
			}
			s.endRound(n)
			return n, false, nil
		default:
			s.endRound(n)
			return n, false, fmt.Errorf("netlink: receive events: %w", errno)
		}
	}
	s.roundEvents += n
	return n, true, nil
}

// step looks at the next datagram and tells whether it gave an event. It
// consumes the datagram unless the event is a loss before it.
func (s *Source) step(e *live.Event) bool {
	m := &s.msg
	if !s.batch.decode(m) {
		s.batch.next++
		return false
	}
	if s.losses.before(m, e) {
		return true
	}
	s.losses.seen(m)
	s.batch.next++
	s.newestNs = max(s.newestNs, m.event.TimeNs)
	*e = m.event
	return e.Kind != 0
}

func (s *Source) endRound(n int) {
	s.busy = s.roundEvents+n >= busyEvents
	s.roundNs, s.newestNs = 0, 0
}

// Wait implements live.Source. It gathers events for 1 ms, or 5 ms while they
// flow, so that they do not cost a wake-up each.
func (s *Source) Wait(timeout time.Duration) error {
	timeout = max(timeout, 0)
	mayPause := s.ringSize >= pauseBufMin
	if s.busy && mayPause {
		pause := min(pauseBusy, timeout)
		if woken, err := s.pause(pause); woken || err != nil {
			return err
		}
		timeout -= pause
	}
	if err := s.poll(s.polls[:], timeout); err != nil {
		return err
	}
	if s.polls[0].Revents&(unix.POLLHUP|unix.POLLNVAL) != 0 {
		return errors.New("netlink: wait for events: the socket is dead")
	}
	if s.takeWake() || s.busy || !mayPause || s.polls[0].Revents == 0 {
		return nil
	}
	_, err := s.pause(min(pauseQuiet, timeout))
	return err
}

// pause sleeps without listening to the socket. woken: Wake ended it.
func (s *Source) pause(d time.Duration) (woken bool, err error) {
	if err := s.poll(s.polls[1:], d); err != nil {
		return false, err
	}
	return s.takeWake(), nil
}

func (s *Source) poll(fds []unix.PollFd, timeout time.Duration) error {
	for i := range fds {
		fds[i].Revents = 0
	}
	ts := unix.NsecToTimespec(timeout.Nanoseconds())
	if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("netlink: wait for events: %w", err)
	}
	return nil
}

// takeWake consumes the wake-ups that the last poll saw.
func (s *Source) takeWake() bool {
	if s.polls[1].Revents == 0 {
		return false
	}
	s.polls[1].Revents = 0
	var count [8]byte
	unix.Read(s.wakeFD, count[:]) // not blocking; nothing to read is as good
	return true
}

// Wake implements live.Source.
func (s *Source) Wake() {
	s.wakeMu.Lock()
	defer s.wakeMu.Unlock()
	if s.wakeFD >= 0 {
		one := [8]byte{}
		native.PutUint64(one[:], 1)
		unix.Write(s.wakeFD, one[:]) // fails only if a wake-up is pending
	}
}

// Close implements live.Source. It ends the subscription: kernels before 6.6
// count listeners and do not notice that one has gone.
func (s *Source) Close() error {
	if s.fd < 0 {
		return nil
	}
	_ = s.send(opIgnore, 0) // newer kernels need none and may refuse it
	err := unix.Close(s.fd)
	s.fd = -1
	s.wakeMu.Lock()
	defer s.wakeMu.Unlock()
	if s.wakeFD >= 0 {
		err = errors.Join(err, unix.Close(s.wakeFD))
		s.wakeFD = -1
	}
	if err != nil {
		return fmt.Errorf("netlink: close: %w", err)
	}
	return nil
}

// nowNs reads the clock that stamps events.
func nowNs() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // cannot be: the clock exists and ts is mapped
	}
	return uint64(ts.Nano())
}
