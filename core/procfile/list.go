package procfile

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	direntBufMin = 1 << 20
	// direntBufMax holds the largest directory there can be: 2^22 names.
	direntBufMax = 1 << 27

	direntName = 19 // offset of the name in an entry
	direntMax  = 32 // an entry whose name is a number of at most 10 digits, or shorter
)

// PIDs appends the number of every process to dst, in ascending order. The
// kernel walks by number, so whoever lives all through the listing is in it.
func (p *Proc) PIDs(dst []uint32) ([]uint32, error) {
	dst, _, err := p.list([]byte(".\x00"), dst)
	return dst, err
}

// TIDs appends the number of every thread of a process to dst, the leader
// first. The kernel walks the list of threads, and a thread that exits in the
// middle of the walk makes it lose its place:
//
//   - if it had been listed already, the walk ends there, and goes on in the
//     next getdents64 call, one thread too far;
//   - if the next call was to begin with it, that call begins one too far.
//
// So a list made by one call lacks a living thread only if it names one that
// has since exited. TIDs therefore reads the directory in one call, with a
// buffer that grows until it fits, and tells in oneCall whether it worked; it
// tries three times. A caller that needs all threads must look whether each
// listed one is still there, and list again if not, as package scan does.
func (p *Proc) TIDs(pid uint32, dst []uint32) (tids []uint32, oneCall bool, err error) {
	var pb pathBuf
	path := pb.pid(pid, "/task")
	start := len(dst)
	for range 3 {
		tids, oneCall, err = p.list(path, dst[:start])
		if oneCall || err != nil {
			break
		}
		dst = tids
	}
	return tids, oneCall, err
}

// list appends the numeric names of a directory. oneCall tells whether they
// all came from one getdents64 call.
func (p *Proc) list(path []byte, dst []uint32) (names []uint32, oneCall bool, err error) {
	fd, errno := openat(p.dirfd, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if errno != 0 {
		return dst, false, p.fileError("open", path, errno)
	}
	buf := p.takeSpare()
	start, calls := len(dst), 0
	for {
		n, errno := getdents(fd, *buf)
		if errno != 0 {
			err = p.fileError("list", path, errno)
			break
		}
		if n == 0 {
			break
		}
		if n > len(*buf)-direntMax && len(*buf) < direntBufMax {
			if _, err = unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
				err = p.pathError("rewind", path, err)
				break
			}
			*buf = make([]byte, 2*len(*buf))
			dst, calls = dst[:start], 0
			continue
		}
		dst = appendNumbers(dst, (*buf)[:n])
		calls++
	}
	unix.Close(fd)
	p.putSpare(buf)
	return dst, calls <= 1, err
}

// appendNumbers appends the names in a block of directory entries that are
// numbers, and skips the others.
func appendNumbers(dst []uint32, block []byte) []uint32 {
	for len(block) > direntName {
		size := int(binary.NativeEndian.Uint16(block[16:]))
		if size <= direntName || size > len(block) {
			break
		}
		if v, ok := taskNumber(block[direntName:size]); ok {
			dst = append(dst, v)
		}
		block = block[size:]
	}
	return dst
}

// taskNumber parses a name that ends in NUL.
func taskNumber(name []byte) (uint32, bool) {
	v := uint64(0)
	for i, c := range name {
		if c == 0 {
			return uint32(v), i > 0
		}
		d := c - '0'
		if d > 9 || i == 0 && d == 0 {
			return 0, false
		}
		if v = v*10 + uint64(d); v > 1<<32-1 {
			return 0, false
		}
	}
	return 0, false
}

func (p *Proc) takeSpare() *[]byte {
	if b := p.spare.Swap(nil); b != nil {
		return b
	}
	b := make([]byte, direntBufMin)
	return &b
}

func (p *Proc) putSpare(b *[]byte) {
	if old := p.spare.Swap(b); old != nil && len(*old) > len(*b) {
		p.spare.Store(old)
	}
}
