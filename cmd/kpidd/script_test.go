package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs testdata/script: what a user sees who has no privilege. No
// script looks at a daemon that is not its own.
func TestScript(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			bin := filepath.Join(env.WorkDir, "bin")
			if err := os.MkdirAll(bin, 0o755); err != nil {
				return err
			}
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv(mainVar, asMain)
			env.Setenv("KPIDD_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
			return os.Symlink(self, filepath.Join(bin, "kpidd"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"refuses": scriptRefuses,
			"exits":   scriptExits,
			"ready":   scriptReady,
		},
	})
}

var errorLine = regexp.MustCompile(`\Akpidd: [^\n]+\n\z`)

// scriptRefuses is "refuses CODE COMMAND…": the command ends with the code,
// prints nothing, and explains itself in one line.
func scriptRefuses(ts *testscript.TestScript, neg bool, args []string) {
	scriptExits(ts, neg, args)
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout: got %q, want nothing", out)
	}
	if line := ts.ReadFile("stderr"); !errorLine.MatchString(line) {
		ts.Fatalf("stderr: got %q, want one line of kpidd", line)
	}
}

// scriptExits is "exits CODE COMMAND…".
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits|refuses CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: got exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// scriptReady is "ready": the script's daemon has published its table.
func scriptReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: ready")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec("kpidd", "ps", "-p", "1")
		if err == nil && ts.ReadFile("stderr") == "" {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no table after 20 s: %v", err)
		}
	}
}
