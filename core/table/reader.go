package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/generated/radix"
	"golang.org/x/sys/unix"
)

// Reader is a table of a daemon, mapped read-only. Its methods take no lock,
// make no system call and never wait for the daemon; any number of goroutines
// may use one Reader, until Close.
//
// A listing is no snapshot of one instant: each task that lives through the
// whole listing is in it exactly once, others may or may not be (MECHANISMS.md
// M1.8). Records themselves are never torn.
type Reader struct {
	View
	mem  []byte
	path string
}

// Open maps the first table found in dirs. ErrNoDaemon: there is none, or only
// what a daemon left that is gone. A table is trusted only if root or this user
// owns it and its directory and nobody else can write them; that of the table is
// checked on the open file. Of several directories those that are somebody else's
// are passed over.
func Open(dirs ...string) (*Reader, error) {
	var stopped error
	for _, dir := range dirs {
		r, err := openIn(dir)
		switch {
		case errors.Is(err, ErrNoDaemon):
			stopped = err
		case len(dirs) > 1 && (errors.Is(err, ErrForeign) || errors.Is(err, fs.ErrPermission)):
			// Anybody may have put it there; that is no reason not to go on.
			stopped = fmt.Errorf("%w: %w", ErrNoDaemon, err)
		case !errors.Is(err, fs.ErrNotExist):
			return r, err
		}
	}
	if stopped != nil {
		return nil, stopped
	}
	return nil, fmt.Errorf("%w in %v; start one with: kpidd run", ErrNoDaemon, dirs)
}

// openIn opens the table of a directory. The directory is looked at first: its
// owner chooses what the table's name leads to, and some files do things when
// they are opened.
func openIn(dir string) (*Reader, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", dir, err)
	}
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s: %w (uid %d); only a table of root or of your own is read", dir, ErrForeign, st.Uid)
	case st.Mode&0o022 != 0:
		return nil, fmt.Errorf("%s: %w: others can write it (mode %#o)", dir, ErrFormat, st.Mode&0o7777)
	}
	return openFile(filepath.Join(dir, TableName))
}

func openFile(path string) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the table: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat the table %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%s: %w: no regular file", path, ErrFormat)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s: %w (uid %d); only a table of root or of your own is read", path, ErrForeign, st.Uid)
	case st.Mode&0o022 != 0:
		return nil, fmt.Errorf("%s: %w: others can write it (mode %#o)", path, ErrFormat, st.Mode&0o7777)
	case st.Size < HeaderBytes || st.Size > 1<<40:
		return nil, fmt.Errorf("%s: %w: %d bytes", path, ErrFormat, st.Size)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table %s: %w", path, err)
	}
	view, err := newView(mem, nil)
	if err == nil {
		err = checkBoot(view.hdr)
	}
	if err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Reader{View: view, mem: mem, path: path}, nil
}

// checkBoot refuses what an earlier boot, or a daemon that stopped, left.
func checkBoot(h *Header) error {
	if id, err := BootID(); err == nil && id != string(trimNUL(h.BootID[:])) {
		return fmt.Errorf("%w: the table is of another boot", ErrNoDaemon)
	}
	if atomic.LoadUint32(&h.State) == TableDead {
		return fmt.Errorf("%w: it has stopped", ErrNoDaemon)
	}
	return nil
}

// Close unmaps the table.
func (r *Reader) Close() error { return unix.Munmap(r.mem) }

// Path is the name under which the table was opened.
func (r *Reader) Path() string { return r.path }

// ErrDead and ErrStale are what Fresh tells of a table that is not kept up.
var (
	ErrDead  = errors.New("the daemon is gone or stopped")
	ErrStale = errors.New("the table is being repaired after a loss of events")
)

// heartbeatMax is how long a living daemon may leave its heartbeat alone.
const heartbeatMax = 2 * time.Second

// Fresh is nil while a daemon keeps the table exact. ErrDead: there was no
// heartbeat for more than two seconds. ErrStale: events were lost and the repair
// is under way. The age is that of the heartbeat or of the loss.
func (r *Reader) Fresh() (age time.Duration, err error) {
	now := MonotonicNs()
	since := func(ns uint64) time.Duration { return time.Duration(max(int64(now-ns), 0)) }
	age = since(atomic.LoadUint64(&r.hdr.HeartbeatNs))
	if atomic.LoadUint32(&r.hdr.State) == TableDead || age > heartbeatMax {
		return age, ErrDead
	}
	if t := atomic.LoadUint64(&r.hdr.StaleSinceNs); t != 0 {
		return since(t), ErrStale
	}
	return age, nil
}

// ByPID returns the record of task nr. ok is false if there is none; unstable
// says that there is one which the daemon did not finish writing.
func (r *Reader) ByPID(nr uint32) (h Hot, ok, unstable bool) {
	slot := r.tree.Lookup(nr)
	if slot == 0 {
		return h, false, false
	}
	if !r.Read(slot, &h) {
		return h, false, true
	}
	return h, h.TID == nr, false
}

// AppendLeaders appends the record of every thread group leader to dst, in order
// of pid. unstable counts the records that could not be copied whole because the
// daemon stopped inside a write; they are left out.
func (r *Reader) AppendLeaders(dst []Hot) (_ []Hot, unstable int) {
	return r.appendAll(dst, true)
}

// AppendTasks is AppendLeaders for every task, threads included. A thread's
// record names no parent; its leader's is filled in.
func (r *Reader) AppendTasks(dst []Hot) (_ []Hot, unstable int) {
	first := len(dst)
	dst, unstable = r.appendAll(dst, false)
	var leader Hot
	for i := range dst[first:] {
		h := &dst[first+i]
		if h.TID == h.TGID {
			continue
		}
		if leader.TID != h.TGID {
			var ok bool
			if leader, ok, _ = r.ByPID(h.TGID); !ok {
				leader = Hot{TID: h.TGID, Flags: FlagPPIDEstimated} // the group has just gone
			}
		}
		h.PPID, h.PPIDAtFork = leader.PPID, leader.PPIDAtFork
		h.Flags |= leader.Flags & FlagPPIDEstimated
	}
	return dst, unstable
}

func (r *Reader) appendAll(dst []Hot, leaders bool) (_ []Hot, unstable int) {
	var buf [512]radix.Tree22Entry
	for from, more := uint32(0), true; more; {
		var n int
		if leaders {
			n, from, more = r.tree.Gang(from, radix.Tree22TGID, buf[:])
		} else {
			n, from, more = r.tree.GangAll(from, buf[:])
		}
		dst = slices.Grow(dst, n)
		for _, e := range buf[:n] {
			end := len(dst)
			dst = dst[:end+1]
			h := &dst[end]
			switch {
			case !r.Read(e.Slot, h):
				unstable++
			case h.TID == e.Key && (!leaders || h.TGID == e.Key):
				continue
			}
			dst = dst[:end]
		}
	}
	return dst, unstable
}

func trimNUL(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}

// Name is the task's comm without its padding. The bytes are the kernel's: any
// but NUL may be among them.
func (h *Hot) Name() []byte { return trimNUL(h.Comm[:]) }
