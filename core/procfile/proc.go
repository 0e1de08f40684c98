package procfile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrGone tells that a task is not there (any more). The kernel says so with
// ENOENT when a file is opened and with ESRCH when it is read; both errors
// are ErrGone, and errors.Is finds the errno too.
var ErrGone = errors.New("task is gone")

// goneError is one of the two errnos that mean ErrGone. The values are made
// once, since tasks vanish by the thousand while /proc is walked.
type goneError struct{ errno unix.Errno }

var (
	goneAtOpen error = &goneError{unix.ENOENT}
	goneAtRead error = &goneError{unix.ESRCH}
)

func (e *goneError) Error() string        { return ErrGone.Error() + ": " + e.errno.Error() }
func (e *goneError) Is(target error) bool { return target == ErrGone }
func (e *goneError) Unwrap() error        { return e.errno }

// Proc is an open proc file system, or a directory laid out like one. All
// methods may be called by many goroutines at once, but not beside Close.
// It must not be copied; make it with Open.
type Proc struct {
	root  string // immutable
	dirfd int    // immutable until Close

	// spare is the buffer of the last listing, kept for the next one. A
	// listing takes it out (swap with nil) and so owns it; a second listing
	// at the same time makes its own, and the larger of the two survives.
	spare atomic.Pointer[[]byte]
}

// Open opens the proc file system at root, "/proc" if root is empty.
func Open(root string) (*Proc, error) {
	if root == "" {
		root = "/proc"
	}
	fd, err := retry(func() (int, error) {
		return unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("open proc file system %s: %w", root, err)
	}
	return &Proc{root: root, dirfd: fd}, nil
}

// Root returns the path that the Proc was opened with.
func (p *Proc) Root() string { return p.root }

// Close gives the descriptor back.
func (p *Proc) Close() error {
	if err := unix.Close(p.dirfd); err != nil {
		return fmt.Errorf("close proc file system %s: %w", p.root, err)
	}
	return nil
}

// statMax is more than a stat line can have: 52 numbers of at most 20 digits
// with a blank each, and a name of at most 64 bytes.
const statMax = 2048

// Stat reads /proc/PID/stat. For a process with many threads this is slow:
// the kernel adds up the CPU time of all of them (about 0.4 µs each).
// TaskStat of the leader differs only in the CPU times.
func (p *Proc) Stat(pid uint32, st *Stat) error {
	var pb pathBuf
	return p.stat(pb.pid(pid, "/stat"), st)
}

// TaskStat reads /proc/PID/task/TID/stat; CPU times are the thread's own. It
// costs the same for every task. The file is there for the leader (tid equal
// to pid) as well, with the group's thread count.
func (p *Proc) TaskStat(pid, tid uint32, st *Stat) error {
	var pb pathBuf
	return p.stat(pb.task(pid, tid, "/stat"), st)
}

func (p *Proc) stat(path []byte, st *Stat) error {
	var buf [statMax]byte
	n, err := p.readFile(path, buf[:])
	if err != nil {
		return err
	}
	if err := ParseStat(buf[:n], st); err != nil {
		return p.pathError("parse", path, err)
	}
	return nil
}

// Comm reads the name of a thread, padded with NUL; the leader's is that of
// the process. Names may hold any byte but NUL. What a kernel thread has
// beyond 15 bytes is cut off.
func (p *Proc) Comm(pid, tid uint32, comm *[16]byte) error {
	var pb pathBuf
	var buf [128]byte
	n, err := p.readFile(pb.task(pid, tid, "/comm"), buf[:])
	if err != nil {
		return err
	}
	if n > 0 && buf[n-1] == '\n' { // the file's end; the name itself may have others
		n--
	}
	setComm(comm, buf[:n])
	return nil
}

// Cmdline reads the arguments of a process into buf, each ended by a NUL, and
// returns how many bytes it read. A full buf may have cut them. Kernel threads
// and zombies have none. The process can overwrite its arguments.
func (p *Proc) Cmdline(pid uint32, buf []byte) (int, error) {
	var pb pathBuf
	return p.readFile(pb.pid(pid, "/cmdline"), buf)
}

// readFile fills buf from a file below the root and returns the length. path
// ends in NUL.
func (p *Proc) readFile(path []byte, buf []byte) (int, error) {
	fd, errno := openat(p.dirfd, path, unix.O_RDONLY|unix.O_CLOEXEC)
	if errno != 0 {
		return 0, p.fileError("open", path, errno)
	}
	n := 0
	for n < len(buf) {
		m, errno := read(fd, buf[n:])
		if errno != 0 {
			unix.Close(fd)
			return 0, p.fileError("read", path, errno)
		}
		if m == 0 {
			break
		}
		n += m
	}
	unix.Close(fd)
	return n, nil
}

// fileError makes the error of a failed call; vanished tasks cost nothing.
func (p *Proc) fileError(verb string, path []byte, errno unix.Errno) error {
	switch errno {
	case unix.ENOENT:
		return goneAtOpen
	case unix.ESRCH:
		return goneAtRead
	}
	return p.pathError(verb, path, errno)
}

//go:noinline
func (p *Proc) pathError(verb string, path []byte, err error) error {
	return fmt.Errorf("%s %s/%s: %w", verb, p.root, string(path[:len(path)-1]), err)
}

// pathBuf builds a path below the root, ended by NUL, without allocation.
type pathBuf struct {
	b [48]byte
}

func (p *pathBuf) pid(pid uint32, file string) []byte {
	b := strconv.AppendUint(p.b[:0], uint64(pid), 10)
	b = append(b, file...)
	return append(b, 0)
}

func (p *pathBuf) task(pid, tid uint32, file string) []byte {
	b := strconv.AppendUint(p.b[:0], uint64(pid), 10)
	b = append(b, "/task/"...)
	b = strconv.AppendUint(b, uint64(tid), 10)
	b = append(b, file...)
	return append(b, 0)
}

// readAll returns a file below the root that is not a task's.
func (p *Proc) readAll(name string) ([]byte, error) {
	return os.ReadFile(p.root + "/" + name)
}
