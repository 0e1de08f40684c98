package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// statusLine refreshes one line on a terminal while the daemon runs.
type statusLine struct{ done chan struct{} }

func startStatusLine(ctx context.Context, d *daemon) statusLine {
	l := statusLine{make(chan struct{})}
	if d.cfg.quiet || !isTerminal(os.Stderr) {
		close(l.done)
		return l
	}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last := uint64(0)
		for {
			select {
			case <-ctx.Done():
				fmt.Fprint(os.Stderr, "\r\x1b[K")
				return
			case <-tick.C:
			}
			h := d.table.Header()
			events := atomic.LoadUint64(&h.Events)
			fmt.Fprintf(os.Stderr, "\r\x1b[K%d processes, %d threads, %d events/s, %d lost, %d repairs (Ctrl-C ends)",
				atomic.LoadUint64(&h.Processes), atomic.LoadUint64(&h.Tasks), events-last,
				atomic.LoadUint64(&h.Lost), atomic.LoadUint64(&h.Resyncs))
			last = events
		}
	}()
	return l
}

// stop waits until the line is gone; its context has ended before.
func (l statusLine) stop() { <-l.done }

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
