package procfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrTimeNamespace: start times and clocks are shifted for this process.
var ErrTimeNamespace = errors.New("this process is in a time namespace of its own, where start times are shifted; run kpidd in the initial one")

// CheckTimeNamespace returns ErrTimeNamespace unless the calling process is in the
// initial time namespace, whose clocks identities are made of.
func CheckTimeNamespace() error {
	const initial = "time:[4026531834]" // the number is fixed by the kernel
	link, err := os.Readlink("/proc/self/ns/time")
	switch {
	case errors.Is(err, fs.ErrNotExist): // before Linux 5.6
		return nil
	case err != nil:
		return fmt.Errorf("look at the time namespace: %w", err)
	case link != initial:
		return ErrTimeNamespace
	}
	return nil
}
