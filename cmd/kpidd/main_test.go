package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kpidd/kpidd/core/live"
	"github.com/kpidd/kpidd/core/serve"
	"github.com/kpidd/kpidd/core/table"
)

// The environment by which this test binary is told to be something else.
const (
	mainVar = "KPIDD_TEST_MAIN" // asMain or asStream
	dropVar = "KPIDD_TEST_DROP" // N: as a daemon, lose one event in N without a word

	asMain   = "1"
	asStream = "stream" // open the event stream of the runtime directory given
)

// workDir holds what is built once for all tests.
var workDir string

func TestMain(m *testing.M) {
	switch os.Getenv(mainVar) {
	case asMain:
		hookDrop()
		main()
	case asStream:
		os.Exit(openStream(os.Args[1]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	// What the caller has set for kpidd is not meant for the tests.
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "KPIDD_") && !strings.HasPrefix(name, "KPIDD_TEST_") && name != longVar {
			os.Unsetenv(name)
		}
	}
	dir, err := os.MkdirTemp("", "kpidd-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	return m.Run()
}

// openStream is what a client without rights is started for: it opens the event
// stream and says what came of it.
func openStream(dir string) int {
	client, err := serve.Dial(context.Background(), filepath.Join(dir, table.SocketName))
	if err != nil {
		fmt.Println(err)
		return exitCannot
	}
	stream, err := client.Events(context.Background(), serve.EventsOptions{})
	if err != nil {
		fmt.Println(err)
		return exitCannot
	}
	defer stream.Close()
	fmt.Println("open")
	return exitDone
}

func hookDrop() {
	n, err := strconv.Atoi(os.Getenv(dropVar))
	if err != nil || n <= 0 {
		return
	}
	wrapSource = func(s live.Source) live.Source { return &dropSource{Source: s, every: n} }
}

// dropSource loses one event in every without telling.
type dropSource struct {
	live.Source
	every, seen int
}

func (s *dropSource) Drain(buf []live.Event) (int, bool, error) {
	n, more, err := s.Source.Drain(buf)
	kept := 0
	for _, ev := range buf[:n] {
		if ev.Kind != live.Lost && ev.Kind != live.Blind {
			if s.seen++; s.seen%s.every == 0 {
				continue
			}
		}
		buf[kept] = ev
		kept++
	}
	return kept, more, err
}
