package procfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// BootID returns the id that the kernel made up at this boot, 36 characters.
func (p *Proc) BootID() (string, error) {
	b, err := p.readAll("sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	id := bytes.TrimSuffix(b, []byte("\n"))
	if len(id) != 36 {
		return "", fmt.Errorf("read boot id: %q is none", id)
	}
	return string(id), nil
}

// BootTime returns the time of the boot in seconds since 1970. It follows the
// wall clock when that is set, and is good for output only.
func (p *Proc) BootTime() (uint64, error) {
	b, err := p.readAll("stat")
	if err != nil {
		return 0, fmt.Errorf("read boot time: %w", err)
	}
	for line := range bytes.Lines(b) {
		if value, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			s, err := strconv.ParseUint(string(bytes.TrimSuffix(value, []byte("\n"))), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read boot time: %w", err)
			}
			return s, nil
		}
	}
	return 0, fmt.Errorf("read boot time: %s/stat has no btime line", p.root)
}

// ClockTicks returns how many ticks /proc counts in a second (USER_HZ; 100 on
// nearly every machine), as the kernel told this process at its start.
func ClockTicks() (uint32, error) {
	const atClockTicks = 17
	aux, err := unix.Auxv()
	if err != nil {
		return 0, fmt.Errorf("read clock ticks from the auxiliary vector: %w", err)
	}
	for _, kv := range aux {
		if kv[0] == atClockTicks && kv[1] > 0 && uint64(kv[1]) <= math.MaxUint32 {
			return uint32(kv[1]), nil
		}
	}
	return 0, errors.New("read clock ticks: the auxiliary vector has none")
}

// HidesOthers tells whether the root keeps the processes of other users from
// the caller (mount option hidepid, without a gid or capability that lifts
// it). The test is whether process 1 can be read: a caller that may trace
// process 1 but not others is told false.
func (p *Proc) HidesOthers() (bool, error) {
	var st Stat
	err := p.Stat(1, &st)
	if errors.Is(err, ErrGone) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return true, nil
	}
	return false, err
}
