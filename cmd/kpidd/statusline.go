package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// statusLine refreshes one line on a terminal while the daemon runs.
type statusLine struct{ done chan struct{} }

// hasStatusLine tells whether a daemon shows one.
func (c *runConfig) hasStatusLine() bool { return !c.quiet && isTerminal(os.Stderr) }

// clearLine ends the line on a terminal that begins at the left edge again.
const clearLine = "\r\x1b[K"

// overStatusLine writes whole lines in place of the status line, which the next
// second brings back below them.
type overStatusLine struct{ io.Writer }

func (w overStatusLine) Write(line []byte) (int, error) {
	n, err := w.Writer.Write(append([]byte(clearLine), line...))
	return max(n-len(clearLine), 0), err
}

func startStatusLine(ctx context.Context, d *daemon) statusLine {
	l := statusLine{make(chan struct{})}
	if !d.cfg.hasStatusLine() {
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
				fmt.Fprint(os.Stderr, clearLine)
				return
			case <-tick.C:
			}
			h := d.table.Header()
			events := atomic.LoadUint64(&h.Events)
			fmt.Fprintf(os.Stderr, clearLine+"%d processes, %d threads, %d events/s, %d lost, %d repairs (Ctrl-C ends)",
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
