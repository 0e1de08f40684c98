package table

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MonotonicNs is CLOCK_MONOTONIC, the clock of heartbeats, of StaleSinceNs and
// of the event stream.
func MonotonicNs() uint64 { return clockNs(unix.CLOCK_MONOTONIC) }

// BoottimeNs is CLOCK_BOOTTIME, the clock of start times.
func BoottimeNs() uint64 { return clockNs(unix.CLOCK_BOOTTIME) }

// WallNs is CLOCK_REALTIME; used at output only, never for identity.
func WallNs() uint64 { return clockNs(unix.CLOCK_REALTIME) }

func clockNs(id int32) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("table: clock_gettime: " + err.Error()) // the three clocks exist on every Linux
	}
	return uint64(ts.Nano())
}

// BootID is the kernel's random id of this boot, 36 characters.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
