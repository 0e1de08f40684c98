package serve

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
)

const (
	// connsMax bounds the open connections.
	connsMax = 256
	// connsOthersMax bounds those of peers that do not see all, so that they
	// cannot keep root out.
	connsOthersMax = 192
)

const refusal = "HTTP/1.1 503 Service Unavailable\r\n" +
	"Content-Type: application/json\r\nConnection: close\r\nContent-Length: 33\r\n\r\n" +
	`{"error":"too many connections"}` + "\n"

// listener accepts connections within the bounds and knows the peer of each.
// Safe for any number of connections at once; Accept belongs to one goroutine.
type listener struct {
	*net.UnixListener
	policy policy
	peer   func(*net.UnixConn) (Peer, error) // readPeer; tests put another here

	open    atomic.Int64
	refused *xsync.Counter // connections turned away
	bytes   *xsync.Counter // bytes sent
}

// Accept returns the next connection that may stay.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := l.peer(c)
		if err != nil {
			l.refused.Inc()
			c.Close()
			continue
		}
		peer.All = l.policy.seesAll(&peer)
		if !l.admit(&peer) {
			l.refused.Inc()
			refuse(c)
			continue
		}
		return &conn{UnixConn: c, listener: l, peer: peer}, nil
	}
}

// admit counts one more connection, if there may be one.
func (l *listener) admit(peer *Peer) bool {
	limit := int64(connsOthersMax)
	if peer.All {
		limit = connsMax
	}
	if l.open.Load() >= limit { // Accept alone adds
		return false
	}
	l.open.Add(1)
	return true
}

// refuse tells the peer why. The answer fits into the empty send buffer of a
// new connection, so the deadline is only a safeguard.
func refuse(c *net.UnixConn) {
	c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	c.Write([]byte(refusal))
	c.Close()
}

// conn is an accepted connection. It counts its bytes, and itself until it is
// closed.
type conn struct {
	*net.UnixConn
	listener *listener
	peer     Peer
	closed   atomic.Bool
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.UnixConn.Write(b)
	c.listener.bytes.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.UnixConn.Close()
}

// withPeer is the ConnContext of the HTTP server.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, c.(*conn).peer)
}
