package lab

import "fmt"

// Release chooses when the work that a released task leaves is done (MECHANISMS.md
// M5).
type Release uint8

const (
	// Deferred does it after the task-list lock is let go.
	Deferred Release = iota
	// UnderLock does it inside the lock: the kernel before the change.
	UnderLock
)

// String is the name as tables print it.
func (r Release) String() string {
	switch r {
	case Deferred:
		return "deferred"
	case UnderLock:
		return "under-lock"
	}
	return fmt.Sprintf("release(%d)", uint8(r))
}
