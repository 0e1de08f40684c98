package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as it was when it
// connected; the kernel vouches for it. PID and the ids are those that the
// daemon's own namespaces show.
type Peer struct {
	PID    int32
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups
	All    bool     // may see the events and arguments of every user
}

type peerKey struct{}

// PeerOf returns the peer of the connection on which a request came. ctx is the
// context of a request that a Server has passed to a handler.
func PeerOf(ctx context.Context) Peer {
	p, _ := ctx.Value(peerKey{}).(Peer)
	return p
}

// policy decides who sees all.
type policy struct {
	ownerUID uint32
	gid      uint32
	hasGroup bool // gid is valid
}

// newPolicy looks the group up. One that does not exist has no members.
func newPolicy(ownerUID uint32, group string) (policy, error) {
	p := policy{ownerUID: ownerUID}
	if group == "" {
		return p, nil
	}
	g, err := user.LookupGroup(group)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("look up group %s: %w", group, err)
	}
	gid, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return p, fmt.Errorf("look up group %s: %w", group, err)
	}
	p.gid, p.hasGroup = uint32(gid), true
	return p, nil
}

func (p *policy) seesAll(peer *Peer) bool {
	if peer.UID == 0 || peer.UID == p.ownerUID {
		return true
	}
	return p.hasGroup && (peer.GID == p.gid || slices.Contains(peer.Groups, p.gid))
}

// readPeer asks the kernel who is at the other end of c. All stays false.
func readPeer(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer Peer
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			peerErr = fmt.Errorf("read the peer's credentials: %w", err)
			return
		}
		peer = Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}
		peer.Groups, peerErr = readPeerGroups(fd)
	})
	return peer, errors.Join(err, peerErr)
}

// groupsMax is the kernel's limit, NGROUPS_MAX.
const groupsMax = 65536

// readPeerGroups returns the supplementary groups that the peer had when it
// connected, nil on kernels before 4.13, which cannot tell.
func readPeerGroups(fd uintptr) ([]uint32, error) {
	var few [32]uint32
	n, errno := getPeerGroups(fd, few[:])
	if errno == 0 {
		return slices.Clone(few[:n]), nil
	}
	if errno == unix.ERANGE && n <= groupsMax {
		groups := make([]uint32, n)
		if n, errno = getPeerGroups(fd, groups); errno == 0 {
			return groups[:n], nil
		}
	}
	if errno == unix.ENOPROTOOPT {
		return nil, nil
	}
	return nil, fmt.Errorf("read the peer's groups: %w", errno)
}

// getPeerGroups returns the number of groups, also with ERANGE when buf is too
// small for them.
func getPeerGroups(fd uintptr, buf []uint32) (int, unix.Errno) {
	const groupBytes = 4
	size := uint32(len(buf) * groupBytes)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(unsafe.Pointer(&size)), 0)
	return int(size / groupBytes), errno
}
