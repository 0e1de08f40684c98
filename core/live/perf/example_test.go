package perf_test

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/live/perf"
)

func ExampleOpen() {
	runtime.LockOSThread()
	source, err := perf.Open(perf.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer source.Close()

	buf := make([]live.Event, 1024)
	for {
		// Records wake nobody until a ring is half full: drain on a tick.
		if err := source.Wait(5 * time.Millisecond); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		for more := true; more; {
			n := 0
			n, more, err = source.Drain(buf)
			for _, ev := range buf[:n] {
				if ev.Kind == live.Exec {
					fmt.Printf("%d runs %s\n", ev.PID, ev.Comm)
				}
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
		}
	}
}
