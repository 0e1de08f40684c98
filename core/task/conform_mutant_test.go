package task_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kpidd/kpidd/internal/privileged"
)

// mutant is a fault of the engine: in one file of core, one piece of a line is
// another. The hand-written scripts have to see it.
type mutant struct {
	rule, fault string
	file        string // below core
	old, new    string // old is there once
	ci          bool   // tried in every run, the others under KPIDD_LONG
}

var mutants = []mutant{
	{"M1.4", "a failed clone keeps the numbers of the levels below", "pid/alloc.go",
		"l.cancel(numbers[l.level])", "_ = numbers[l.level]", true},
	{"M1.5", "a leader's number is not tagged below the root", "pid/alloc.go",
		"l.tag(numbers[l.level])", "_ = numbers[l.level]", false},
	{"M1.7", "a listing goes on one number too far", "pid/walk.go",
		"w.next = key + 1\n\t\tif w.ns.space", "w.next = key + 2\n\t\tif w.ns.space", true},
	{"M1.9", "the low numbers are not reserved after the wrap", "pid/alloc.go",
		"if ns.cursor > Reserved {", "if ns.cursor > Max {", false},
	{"M1.9", "allocation is not cyclic", "pid/alloc.go",
		"ns.cursor = nr + 1\n\tns.numbers++", "ns.cursor = min\n\tns.numbers++", true},
	{"M1.9", "anybody may request numbers", "pid/alloc.go",
		"case !allowed:", "case false:", false},
	{"M1.9", "the first number of a namespace may be any", "pid/alloc.go",
		"want != 1 && ns.reaper.Load() == 0 && !ns.closed.Load():", "false:", false},
	{"M1.9", "namespaces nest to 33 levels", "pid/namespace.go",
		"if parent.level == LevelsMax {", "if parent.level > LevelsMax {", false},
	{"M2", "a second mount makes a superblock of its own", "ns/super.go",
		"if sb.typ == t {", "if sb.typ != t {", true},
	{"M2", "a new namespace is its parent's", "ns/clone.go",
		"s.replace(member, n)", "n.Put()", false},
	{"M5.3", "the user of a session does not give its number up", "task/release.go",
		"e.leaveLocked(w.sid(), pid.SID, p)", "_ = pid.SID", true},
	{"M5.3", "the user of a group does not give its number up", "task/release.go",
		"e.leaveLocked(w.pgid(), pid.PGID, p)", "_ = pid.PGID", false},
	{"M5.4", "a parent that ignores SIGCHLD gets zombies", "task/end.go",
		"e.recs.at(parent).flags&(ignores|noWait) != 0", "e.recs.at(parent).flags&noWait != 0", false},
	{"M5.4", "a zombie adopted by one who ignores SIGCHLD stays", "task/end.go",
		"e.notifyLocked(child, p)", "_ = child", false},
	{"M5.5", "the leader of a group may begin a session", "task/group.go",
		" || e.pids.Users(leader, pid.PGID) != 0 {", " {", false},
	{"M5.5", "a child that has called exec may be moved", "task/group.go",
		"case r.flags&newImage != 0:", "case false:", false},
	{"M5.5", "a group of another session may be joined", "task/group.go",
		"e.who.At(group).sid() != e.who.At(caller).sid() {", "false {", false},
	{"M5", "a process has its leader's status, not the last one's", "task/end.go",
		"l.flags&exited != 0 && l.members == 2 {\n\t\tl.status", "l == nil {\n\t\tl.status", false},
	{"M5", "subreapers adopt nobody", "task/end.go",
		"flags&(subreaper|ended) == subreaper {", "flags&subreaper == 0 && false {", true},
	{"M5", "exec does not take SA_NOCLDWAIT back", "task/image.go",
		"l.flags = l.flags&^noWait | newImage", "l.flags = l.flags | newImage", false},
	{"M5", "WNOWAIT reaps", "task/wait.go",
		"if options&unix.WNOWAIT == 0 {", "if options >= 0 {", false},
	{"M5", "a sibling is a child", "task/clone.go",
		"parent = e.recs.at(leader).parent", "_ = e.recs.at(leader).parent", false},
	{"M5", "the reaper of a namespace dies alone", "task/end.go",
		"e.exitGroupLocked(r.leader, Signaled(unix.SIGKILL), p)", "_ = p", false},
	{"M5", "the reaper of a namespace does not wait for it", "task/end.go",
		"if e.populatedLocked(ns) {", "if false {", false},
	{"M5", "exec does not end the vfork that made the process", "task/image.go",
		"e.resumeLocked(leader)", "_ = leader", false},
}

const mutantPatience = 3 * time.Minute // to build and run the scripts once

// TestPrivilegedConformanceMutants: the scripts catch faults of the engine, each a
// line changed in one of its files.
func TestPrivilegedConformanceMutants(t *testing.T) {
	privileged.Hold(t)
	gotool, err := exec.LookPath("go")
	if err != nil {
		privileged.Missing(t, "go")
	}
	if len(mutants) < 20 {
		t.Errorf("got %d mutants, want 20", len(mutants))
	}
	tried := 0
	for i := range mutants {
		m := &mutants[i]
		overlay := m.overlay(t)
		if !m.ci && !long() {
			continue
		}
		tried++
		out, err := scriptsUnder(gotool, overlay)
		switch {
		case err == nil:
			t.Errorf("%s, %s: not caught", m.rule, m.fault)
		case !strings.Contains(out, "--- FAIL: TestConformance") && !strings.Contains(out, "panic: "):
			t.Errorf("%s, %s: %v, and no script failed:\n%s", m.rule, m.fault, err, out)
		}
	}
	if tried < 5 {
		t.Errorf("tried %d mutants, want 5", tried)
	}
	if out, err := scriptsUnder(gotool, ""); err != nil {
		t.Errorf("the engine as it is: %v\n%s", err, out)
	}
}

// overlay writes the changed file and the list that has the go tool use it.
func (m *mutant) overlay(t *testing.T) (path string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("..", filepath.FromSlash(m.file)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s: %q is there %d times, want once: describe the mutant anew", m.file, m.old, n)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// scriptsUnder plays the hand-written scripts on a changed engine.
func scriptsUnder(gotool, overlay string) (out string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), mutantPatience)
	defer cancel()
	args := []string{"test", "-count=1", "-timeout=60s", "-run=^TestConformance$"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	text, err := exec.CommandContext(ctx, gotool, append(args, ".")...).CombinedOutput()
	return string(text), err
}
