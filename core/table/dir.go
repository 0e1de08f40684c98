package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The names in a runtime directory.
const (
	TableName  = "table"
	SocketName = "kpidd.sock"
	lockName   = "lock"
)

const (
	systemDir = "/run/kpidd"
	shmDir    = "/dev/shm"
)

// Errors of a runtime directory. All are wrapped with the path and with what
// to do.
var (
	ErrBusy     = errors.New("another kpidd runs on this directory")
	ErrNoTmpfs  = errors.New("no tmpfs for the table")
	ErrForeign  = errors.New("owned by somebody else")
	ErrNoDaemon = errors.New("no kpidd daemon")
)

// DefaultDir is the runtime directory of a daemon run by uid: /run/kpidd for
// root, else $XDG_RUNTIME_DIR/kpidd or, without that, a directory of the user's
// own under /dev/shm.
func DefaultDir(uid int) string {
	if uid == 0 {
		return systemDir
	}
	return ownDir(uid)
}

func ownDir(uid int) string {
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		return filepath.Join(x, "kpidd")
	}
	return filepath.Join(shmDir, "kpidd-"+strconv.Itoa(uid))
}

// ReaderDirs are the directories in which a reader run by uid looks, in order:
// the system's, then its own.
func ReaderDirs(uid int) []string {
	if own := ownDir(uid); uid != 0 || own != systemDir {
		return []string{systemDir, own}
	}
	return []string{systemDir}
}

// Dir is a runtime directory held by this process. While it is held no second
// daemon can take it.
type Dir struct {
	Path string
	lock *os.File
}

// Hold makes the directory if needed, checks that nobody else can write in it,
// and takes its lock. ErrBusy: a daemon runs there. ErrForeign: the directory,
// or its lock, belongs to another user.
func Hold(path string) (*Dir, error) {
	mode := os.FileMode(0o755)
	if os.Geteuid() != 0 {
		mode = 0o700
	}
	err := os.Mkdir(path, mode)
	if err == nil {
		err = os.Chmod(path, mode) // whatever the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the runtime directory: %w (choose another with --runtime-dir)", err)
	}
	if err := checkOwn(path, unix.S_IFDIR); err != nil {
		return nil, err
	}
	name := filepath.Join(path, lockName)
	if err := checkOwn(name, unix.S_IFREG); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the runtime directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		var holder [16]byte
		n, _ := lock.ReadAt(holder[:], 0)
		return nil, fmt.Errorf("%s: %w (pid %s); stop it or choose another --runtime-dir",
			path, ErrBusy, strings.TrimSpace(string(holder[:n])))
	}
	if err = lock.Truncate(0); err == nil {
		_, err = lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return &Dir{Path: path, lock: lock}, nil
}

// Release gives the directory back. Its files stay.
func (d *Dir) Release() error { return d.lock.Close() }

// checkOwn refuses a path that is not ours, is no file of the wanted kind, or
// that others may write.
func checkOwn(path string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return fmt.Errorf("%s is not of the expected kind (mode %#o); remove it or choose another --runtime-dir", path, st.Mode)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w (uid %d); choose another --runtime-dir", path, ErrForeign, st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %#o); chmod go-w it or choose another --runtime-dir", path, st.Mode&0o7777)
	}
	return nil
}

// onTmpfs tells whether path lies on a memory file system. A mapped file on a
// disk can stall its writer for as long as the disk likes.
func onTmpfs(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}
