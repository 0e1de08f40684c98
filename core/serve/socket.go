package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socketMode lets everybody connect: rights are decided by request.
const socketMode = 0o666

// pathMax is the longest path that bind(2) and connect(2) take.
const pathMax = len(unix.RawSockaddrUnix{}.Path) - 1

// bindSocket listens at path. The socket appears there with its final mode, and
// replaces one that an earlier daemon has left. Anything at path that is no
// socket is left alone. The caller holds the lock of the directory.
func bindSocket(path string) (*net.UnixListener, os.FileInfo, error) {
	bindPath := path + ".new"
	if n := len(bindPath); n > pathMax {
		return nil, nil, fmt.Errorf("listen on %s: the path is %d bytes too long for a socket", path, n-pathMax)
	}
	for _, p := range []string{path, bindPath} {
		if err := checkReplaceable(p); err != nil {
			return nil, nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	if err := os.Remove(bindPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("listen on %s: remove a socket left behind: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: bindPath, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // the name it knows is gone after the rename
	info, err := publishSocket(bindPath, path)
	if err != nil {
		l.Close()
		os.Remove(bindPath)
		return nil, nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, info, nil
}

// publishSocket gives the bound socket its mode and its name.
func publishSocket(bindPath, path string) (os.FileInfo, error) {
	if err := os.Chmod(bindPath, socketMode); err != nil {
		return nil, err
	}
	info, err := os.Lstat(bindPath)
	if err != nil {
		return nil, err
	}
	return info, os.Rename(bindPath, path)
}

// checkReplaceable refuses what is there and is no socket.
func checkReplaceable(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; it is left alone", path)
	}
	return nil
}

// removeSocket removes path if it is still the socket that bound describes.
func removeSocket(path string, bound os.FileInfo) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, bound) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
