package serve

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeUser changes the credentials of the calling thread alone.
func becomeUser(uid, gid uint32, groups []uint32) error {
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups)))},
		{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return errno
		}
	}
	return nil
}
