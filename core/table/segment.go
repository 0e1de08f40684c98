package table

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// segment is the memory of a table that this process writes, and the file
// behind it if there is one.
type segment struct {
	mem  []byte
	file *os.File // nil: anonymous memory
	path string   // of the file itself
	name string   // under which readers find it; differs from path where it is a symlink
}

// newSegment makes an unpublished file for the table of directory dir: in dir
// itself if that is a tmpfs, else under /dev/shm. Readers see it after publish.
func newSegment(dir string, size uint64) (*segment, error) {
	var id [8]byte
	rand.Read(id[:])
	s := &segment{name: filepath.Join(dir, TableName)}
	var prefix string
	switch {
	case onTmpfs(dir):
		prefix = s.name + "."
	case onTmpfs(shmDir):
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return nil, fmt.Errorf("stat %s: %w", dir, err)
		}
		prefix = shmNames(&st)
	default:
		return nil, fmt.Errorf("%w: neither %s nor %s is one; mount a tmpfs and name it with --runtime-dir", ErrNoTmpfs, dir, shmDir)
	}
	sweep(prefix, s.name)
	s.path = prefix + hex.EncodeToString(id[:])
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make the table: %w", err)
	}
	s.file = f
	err = f.Chmod(0o644) // whatever the umask: readers need no rights but to read
	if err == nil {
		err = f.Truncate(int64(size))
	}
	if err == nil {
		s.mem, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		s.discard()
		return nil, fmt.Errorf("map the table %s: %w", s.path, err)
	}
	return s, nil
}

// sweep removes the files that daemons of this directory left behind when they
// were killed before they published them. The caller holds the directory, so
// nobody writes such a file now. What is published stays until publish replaces it.
func sweep(prefix, name string) {
	published, _ := os.Readlink(name)
	entries, _ := os.ReadDir(filepath.Dir(prefix)) // what cannot be read cannot be swept
	for _, entry := range entries {
		path := filepath.Join(filepath.Dir(prefix), entry.Name())
		id, ours := strings.CutPrefix(path, prefix)
		if _, err := hex.DecodeString(id); ours && err == nil && len(id) == 16 && path != published {
			os.Remove(path)
		}
	}
}

// shmNames is the beginning of the files under /dev/shm of the directory that st
// describes.
func shmNames(st *unix.Stat_t) string {
	return filepath.Join(shmDir, fmt.Sprintf("%s%x.%x-", shmPrefix(), st.Dev, st.Ino))
}

func shmPrefix() string { return "kpidd-" + strconv.Itoa(os.Geteuid()) + "-" }

func anonymousSegment(size uint64) (*segment, error) {
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for the table: %w", size, err)
	}
	return &segment{mem: mem}, nil
}

// back gives memory to a range of the file before its first store: on a full
// tmpfs a store would kill the process, fallocate answers ENOSPC.
func (s *segment) back(off, n uint64) error {
	if s.file == nil {
		return nil
	}
	for {
		err := unix.Fallocate(int(s.file.Fd()), 0, int64(off), int64(n))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("allocate %d bytes of the table %s: %w", n, s.path, err)
		}
	}
}

// publish puts the file under the name that readers open, in place of an older
// table of ours, which is marked dead. Anything else there is left alone and is
// an error.
func (s *segment) publish() error {
	if s.file == nil {
		return nil // only this process reads it
	}
	old, err := retire(s.name)
	if err != nil {
		return err
	}
	if s.path != s.name && filepath.Dir(s.path) != filepath.Dir(s.name) {
		tmp := s.name + ".new"
		if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("publish the table: %w", err)
		}
		if err := os.Symlink(s.path, tmp); err != nil {
			return fmt.Errorf("publish the table: %w", err)
		}
		err = os.Rename(tmp, s.name)
	} else if err = os.Rename(s.path, s.name); err == nil {
		s.path = s.name
	}
	if err != nil {
		return fmt.Errorf("publish the table: %w", err)
	}
	if old != "" {
		os.Remove(old) // the old file behind a symlink; a plain one was replaced by the rename
	}
	return nil
}

// retire marks an older table at name as dead. It returns the path of its file
// where that is not name itself.
func retire(name string) (path string, err error) {
	st, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at the old table: %w", err)
	}
	target := name
	if st.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(name); err != nil {
			return "", fmt.Errorf("look at the old table: %w", err)
		}
		if !strings.HasPrefix(target, filepath.Join(shmDir, shmPrefix())) || filepath.Dir(target) != shmDir {
			return "", fmt.Errorf("%s points to %s, which is no table of ours; remove it", name, target)
		}
		path = target
	} else if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no table; remove it", name)
	}
	f, err := os.OpenFile(target, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // a symlink left behind
	}
	if err != nil {
		return "", fmt.Errorf("look at the old table: %w", err)
	}
	defer f.Close()
	var on unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &on)
	if err != nil || on.Mode&unix.S_IFMT != unix.S_IFREG || on.Size < HeaderBytes || int(on.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is no table of ours; remove it", target)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, HeaderBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return "", fmt.Errorf("look at the old table: %w", err)
	}
	defer unix.Munmap(mem)
	h := (*Header)(unsafe.Pointer(&mem[0]))
	if h.Magic != ABIMagic {
		return "", fmt.Errorf("%s is no table of ours; remove it", target)
	}
	atomic.StoreUint32(&h.State, TableDead)
	return path, nil
}

// discard gives up a file that was not published.
func (s *segment) discard() {
	if s.mem != nil {
		unix.Munmap(s.mem)
		s.mem = nil
	}
	if s.file != nil {
		os.Remove(s.path)
		s.file.Close()
	}
}

// remove takes the published names away, if they are still this file's.
func (s *segment) remove() error {
	if s.file == nil {
		return nil
	}
	mine, err := s.file.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(s.name); err == nil && os.SameFile(mine, now) {
		err = os.Remove(s.name)
		if err != nil {
			return fmt.Errorf("remove the table: %w", err)
		}
	}
	if s.path != s.name {
		os.Remove(s.path)
	}
	return s.file.Close()
}
