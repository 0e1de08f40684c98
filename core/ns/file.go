package ns

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// File is a descriptor of a namespace: it keeps it alive, without a process in it,
// until it is closed. Any goroutine may use it; it is not copied.
type File struct{ ns atomic.Pointer[Namespace] }

// Open returns a descriptor of n. ENOENT: n is dead.
func (n *Namespace) Open() (*File, error) {
	if !n.TryGet() {
		return nil, fmt.Errorf("open %v: %w", n, unix.ENOENT)
	}
	f := new(File)
	f.ns.Store(n)
	return f, nil
}

// Namespace is the namespace, which lives until Close, or nil after that.
func (f *File) Namespace() *Namespace { return f.ns.Load() }

// Close gives it up. EBADF: it is closed.
func (f *File) Close() error {
	n := f.ns.Swap(nil)
	if n == nil {
		return fmt.Errorf("close namespace file: %w", unix.EBADF)
	}
	n.Put()
	return nil
}
