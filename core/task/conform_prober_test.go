package task_test

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prober tells which numbers of a namespace are free. No listing shows that: a
// number outlives its task for a moment after the end, and for long as a session's.
//
// It asks clone3(2) for the number inside together with one outside that cannot be.
// The kernel reserves from the inside out, so that a number in use gives EEXIST, a
// free one is reserved, given back, and EINVAL is for the one outside. Nothing is
// ever made. A thread that can do this can make no threads: it serves the prober
// alone, and ends with it.
type prober struct {
	ask    chan int
	answer chan error
}

func newProber(reaper int) (*prober, error) {
	p := &prober{make(chan int), make(chan error)}
	go p.serve(reaper)
	if err := <-p.answer; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *prober) close() { close(p.ask) }

func (p *prober) serve(reaper int) {
	runtime.LockOSThread()
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/pid", reaper), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(fd, unix.CLONE_NEWPID)
		unix.Close(fd)
	}
	p.answer <- err
	for nr := range p.ask {
		p.answer <- probe(nr)
	}
}

// cloneArgs is struct clone_args of clone3(2), its second version.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
	setTID                                                               *int32
	setTIDSize                                                           uint64
}

func probe(nr int) error {
	numbers := [2]int32{int32(nr), 1<<31 - 1}
	args := cloneArgs{exitSignal: uint64(unix.SIGCHLD), setTID: &numbers[0], setTIDSize: 2}
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	return errno
}

// awaitFree waits until a number is free.
func (p *prober) awaitFree(nr int) error {
	for end := time.Now().Add(patience); ; time.Sleep(peekInterval) {
		p.ask <- nr
		switch err := <-p.answer; {
		case errors.Is(err, unix.EINVAL):
			return nil
		case !errors.Is(err, unix.EEXIST):
			return fmt.Errorf("probe of number %d: %w", nr, err)
		case time.Now().After(end):
			return fmt.Errorf("number %d stays in use", nr)
		}
	}
}
