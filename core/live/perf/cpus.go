package perf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const onlineFile = "/sys/devices/system/cpu/online"

// recheckEvery is how often the list of CPUs is read again where the kernel
// does not tell of changes.
const recheckEvery = time.Second

// clockStep is longer than a step of the coarsest clock that an event may have.
const clockStep = 20 * time.Millisecond

// onlineCPUs returns the numbers of the CPUs that are online, ascending. The
// affinity of this process has no influence on them.
func onlineCPUs() ([]int, error) {
	b, err := os.ReadFile(onlineFile)
	if err != nil {
		return nil, err
	}
	cpus, err := parseCPUList(string(b))
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", onlineFile, err)
	}
	return cpus, nil
}

// parseCPUList parses a list such as "0-3,8,10-11". The numbers must ascend.
func parseCPUList(s string) ([]int, error) {
	var cpus []int
	next := 0 // the lowest number that may come
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.ParseUint(from, 10, 31)
		hi, err2 := strconv.ParseUint(to, 10, 31)
		if err1 != nil || err2 != nil || int(lo) < next || hi < lo || hi >= ringsMax {
			return nil, fmt.Errorf("bad list of cpus %q", s)
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus = append(cpus, int(cpu))
		}
		next = int(hi) + 1
	}
	return cpus, nil
}

// ueventGroup is the multicast group in which the kernel tells of devices.
const ueventGroup = 1

// openUevents returns a socket on which the kernel tells of CPUs that come and
// go.
func openUevents() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return -1, fmt.Errorf("open uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: ueventGroup}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind uevent socket: %w", err)
	}
	return fd, nil
}

// readUevents reads what is in the socket, up to a bound, and reports whether
// the set of online CPUs may have changed.
func readUevents(fd int) (changed bool, err error) {
	var buf [8192]byte
	for range 64 {
		n, from, err := unix.Recvfrom(fd, buf[:], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return changed, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS): // some were dropped
			changed = true
			continue
		case err != nil:
			return changed, fmt.Errorf("read uevent socket: %w", err)
		}
		if nl, ok := from.(*unix.SockaddrNetlink); ok && nl.Pid == 0 && isCPUEvent(buf[:n]) {
			changed = true
		}
	}
	return changed, nil
}

// isCPUEvent reports whether a message of the kernel, "action@devpath" and then
// variables, tells that a CPU came online or went offline.
func isCPUEvent(msg []byte) bool {
	head, _, _ := bytes.Cut(msg, []byte{0})
	action, path, ok := bytes.Cut(head, []byte("@"))
	if !ok || !bytes.HasPrefix(path, []byte("/devices/system/cpu/cpu")) {
		return false
	}
	return string(action) == "online" || string(action) == "offline"
}

// alive reports whether the ring's event is on its CPU. An event that was put
// off its CPU when that went offline never comes back, and its clock stands.
func (r *ring) alive() bool {
	before := r.readCounters().enabledNs
	if r.readCounters().enabledNs != before {
		return true
	}
	time.Sleep(clockStep)
	return r.readCounters().enabledNs != before
}
