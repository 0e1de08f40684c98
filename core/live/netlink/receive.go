package netlink

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batchLen   = 64
	messageMax = 256 // a datagram has 76 bytes; later kernels may add fields
)

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// batch receives up to batchLen datagrams with one system call, into its own
// memory. Make it with newBatch; it must not be copied.
type batch struct {
	headers [batchLen]mmsghdr
	vectors [batchLen]unix.Iovec
	senders [batchLen]unix.RawSockaddrNetlink
	bytes   [batchLen][messageMax]byte
	len     int // datagrams received
	next    int // the first that was not consumed
}

func newBatch() *batch {
	b := new(batch)
	for i := range b.headers {
		b.vectors[i].Base = &b.bytes[i][0]
		b.vectors[i].SetLen(messageMax)
		hdr := &b.headers[i].hdr
		hdr.Iov = &b.vectors[i]
		hdr.SetIovlen(1)
		hdr.Name = (*byte)(unsafe.Pointer(&b.senders[i]))
		hdr.Namelen = unix.SizeofSockaddrNetlink
	}
	return b
}

// receive fills an empty batch with what is queued.
func (b *batch) receive(fd int) unix.Errno {
	b.len, b.next = 0, 0
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.headers)), batchLen, unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 {
		b.len = int(n)
	}
	return errno
}

func (b *batch) empty() bool { return b.next == b.len }

// decode decodes the next datagram without consuming it. It is false for what
// the kernel did not send, and for what was cut off or makes no sense.
func (b *batch) decode(m *message) bool {
	h := &b.headers[b.next]
	if b.senders[b.next].Pid != 0 || h.hdr.Flags&unix.MSG_TRUNC != 0 || h.len > messageMax {
		return false
	}
	return decode(b.bytes[b.next][:h.len], m)
}
