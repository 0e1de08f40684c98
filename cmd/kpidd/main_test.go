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
	"golang.org/x/sys/unix"
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

// A note takes the place of the status line and does not stand behind it.
func TestOverStatusLine(t *testing.T) {
	var out strings.Builder
	n, err := fmt.Fprint(overStatusLine{&out}, "note\n")
	if want := clearLine + "note\n"; out.String() != want || n != len("note\n") || err != nil {
		t.Errorf("got %q, %d, %v; want %q, %d, nil", out.String(), n, err, want, len("note\n"))
	}
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

// full is an output without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// What cannot be written was not done.
func TestOutputFull(t *testing.T) {
	for _, args := range [][]string{
		{"version"}, {"version", "--json"}, {"completion", "bash"}, {"completion", "zsh"}, {"man"}, {"man", "ps"},
		{"ps", "--quiet", "--runtime-dir", t.TempDir()},
	} {
		var stderr strings.Builder
		if got := execute(args, full{}, &stderr); got != exitCannot || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("kpidd %s: got exit code %d and %q, want %d and one line", strings.Join(args, " "), got, stderr.String(), exitCannot)
		}
	}
}
