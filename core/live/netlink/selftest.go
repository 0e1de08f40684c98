package netlink

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kpidd/kpidd/core/live"
)

const (
	selfTestTries = 5
	selfTestWait  = 100 * time.Millisecond
)

var errSilent = errors.New("the proc connector is silent here " +
	"(a container, another user or PID namespace, or a kernel without CONFIG_PROC_EVENTS: " +
	"run on the host, or use another source)")

// selfTest subscribes, forks a child that ends at once, and waits for two
// datagrams: the kernel's answer to this very request, and the fork. The
// kernel ignores requests from other user and PID namespaces without a word.
// The fork alone proves too little: a socket there receives the events, with
// numbers that mean nothing to it, as long as anybody else listens. The
// acknowledgement alone proves that events were asked for, not that they come.
// Both can be lost in a storm, hence the repetition.
func (s *Source) selfTest() error {
	nonce := uint32(nowNs())
	test := selfTest{ack: nonce + 1, pid: uint32(os.Getpid())}
	for range selfTestTries {
		if err := s.subscribe(nonce); err != nil {
			return err
		}
		if err := forkOnce(); err != nil {
			return err
		}
		if err := s.hear(&test); err != nil {
			return err
		}
		if test.accepted && test.forked {
			return nil
		}
	}
	return errSilent
}

// selfTest is what the test waits for and what it has heard.
type selfTest struct {
	ack, pid         uint32
	accepted, forked bool
}

// subscribe asks the kernel for all events. ack comes back, plus one.
func (s *Source) subscribe(ack uint32) error {
	err := s.send(opListen, ack)
	if errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("subscribe to the proc connector: %w (it speaks in the host's network namespace only: run there, or use another source)", err)
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("subscribe to the proc connector: %w (needs CAP_NET_ADMIN before Linux 6.6: run as root)", err)
	}
	if err != nil {
		return fmt.Errorf("subscribe to the proc connector: %w", err)
	}
	return nil
}

// send sends a request to the proc connector.
func (s *Source) send(op, ack uint32) error {
	var b [offEvent + 4]byte
	native.PutUint32(b[0:], uint32(len(b)))
	native.PutUint16(b[4:], unix.NLMSG_DONE)
	native.PutUint32(b[offCn:], cnIdxProc)
	native.PutUint32(b[offCn+4:], cnValProc)
	native.PutUint32(b[offCn+12:], ack)
	native.PutUint16(b[offCn+16:], 4)
	native.PutUint32(b[offEvent:], op)
	return unix.Sendto(s.fd, b[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// forkOnce makes a child that finds no program to run and exits.
func forkOnce() error {
	_, err := syscall.ForkExec("", []string{"kpidd-self-test"}, nil)
	if !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("fork for the self-test: %w", err)
	}
	return nil
}

// hear receives until the test has heard both or has waited long enough.
// Events are older than the caller's start, so they are dropped; only the
// sequence numbers are kept, as the base for finding losses.
func (s *Source) hear(test *selfTest) error {
	deadline := time.Now().Add(selfTestWait)
	for !(test.accepted && test.forked) {
		for !s.batch.empty() {
			s.hearNext(test)
		}
		switch errno := s.batch.receive(s.fd); errno {
		case 0, unix.EINTR, unix.ENOBUFS:
		case unix.EAGAIN:
			left := time.Until(deadline)
			if left <= 0 {
				return nil
			}
			if err := s.poll(s.polls[:1], left); err != nil {
				return err
			}
		default:
			return fmt.Errorf("receive the self-test's events: %w", errno)
		}
	}
	return nil
}

func (s *Source) hearNext(test *selfTest) {
	m := &s.msg
	ok := s.batch.decode(m)
	s.batch.next++
	if !ok {
		return
	}
	s.losses.seen(m)
	switch {
	case m.isAck && m.ack == test.ack && m.ackErr == 0:
		test.accepted = true
	case m.event.Kind == live.Fork && m.event.PPID == test.pid:
		test.forked = true
	}
}
