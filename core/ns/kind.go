package ns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Kind is a kind of namespace.
type Kind uint8

// The kinds, in the order of /proc/PID/ns.
const (
	Cgroup Kind = iota
	IPC
	Mount
	Net
	PID
	Time
	User
	UTS

	Kinds = 8
)

// kinds holds what differs between kinds only by value. The inode numbers are
// those of the first namespaces of Linux 6.18; the kernel counts downwards from
// the last number before firstDynamic.
var kinds = [Kinds]struct {
	name string
	flag uint64
	inum uint32
}{
	Cgroup: {"cgroup", unix.CLONE_NEWCGROUP, 0xEFFFFFFB},
	IPC:    {"ipc", unix.CLONE_NEWIPC, 0xEFFFFFFF},
	Mount:  {"mnt", unix.CLONE_NEWNS, 0xEFFFFFF8},
	Net:    {"net", unix.CLONE_NEWNET, 0xEFFFFFF9},
	PID:    {"pid", unix.CLONE_NEWPID, 0xEFFFFFFC},
	Time:   {"time", unix.CLONE_NEWTIME, 0xEFFFFFFA},
	User:   {"user", unix.CLONE_NEWUSER, 0xEFFFFFFD},
	UTS:    {"uts", unix.CLONE_NEWUTS, 0xEFFFFFFE},
}

// namespaceFlags are the flags of all kinds.
const namespaceFlags = unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWNET |
	unix.CLONE_NEWPID | unix.CLONE_NEWTIME | unix.CLONE_NEWUSER | unix.CLONE_NEWUTS

// Inode numbers. The number of a namespace is the lowest that is free.
const (
	firstNumber  = 0xEFFFFFF8 // of the first mount namespace
	firstDynamic = 0xF0000000
	lastNumber   = 0xFFFFFFFF
)

// numberKey is the key of an inode number in a tree: small for the numbers that
// Linux gives, so that the tree is low.
func numberKey(inum uint32) uint64 { return uint64(inum - firstNumber) }

// String is the kind's name below /proc/PID/ns.
func (k Kind) String() string {
	if k >= Kinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kinds[k].name
}

// Flag is the kind's CLONE_NEW… flag.
func (k Kind) Flag() uint64 { return kinds[k].flag }
