package procfile

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// openat opens a path that ends in NUL, without copying it.
func openat(dirfd int, path []byte, flags int) (int, unix.Errno) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(&path[0])), uintptr(flags), 0, 0, 0)
		if errno != unix.EINTR {
			return int(fd), errno
		}
	}
}

// read reads into buf, which is not empty.
func read(fd int, buf []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// getdents reads directory entries into buf, which is not empty.
func getdents(fd int, buf []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_GETDENTS64, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
