package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "r.spec")
	text := "package p\nrecord Rec bytes=64 read=words spins=1 yields=1\n"
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.spec")
	if err := os.WriteFile(bad, []byte("package p\ntree T key=22 own=gc writers=one empty=keep\n  split 11 12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, args string
		status     int
		want       string
	}{
		{"help", "-h", 0, "usage: gen -spec FILE [-pkg NAME] -out DIR"},
		{"nothing", "", 2, "-spec and -out are needed"},
		{"no out", "-spec " + spec, 2, "-spec and -out are needed"},
		{"no spec", "-out " + dir, 2, "-spec and -out are needed"},
		{"unknown flag", "-width 48", 2, "-width"},
		{"argument", "-spec " + spec + " -out " + dir + " more", 2, `unexpected argument "more"`},
		{"package", "-spec " + spec + " -pkg a-b -out " + dir, 1, `-pkg: "a-b" is no Go name`},
		{"missing file", "-spec " + dir + "/none.spec -out " + dir, 1, "read specification: "},
		{"refused", "-spec " + bad + " -out " + dir, 1, "gen: bad.spec:3: tree T: split 11 + 12 is not the key's 22 bits"},
		{"folder under a file", "-spec " + spec + " -out " + spec + "/x", 1, "make folder"},
		{"done", "-spec " + spec + " -pkg other -out " + dir + "/new/folder", 0, ""},
	} {
		var stderr bytes.Buffer
		status := command(strings.Fields(c.args), &stderr)
		if status != c.status || !strings.Contains(stderr.String(), c.want) || c.want == "" && stderr.Len() > 0 {
			t.Errorf("%s: got status %d and %q, want %d and %q", c.name, status, stderr.String(), c.status, c.want)
		}
	}
	code, err := os.ReadFile(filepath.Join(dir, "new", "folder", "rec_gen.go"))
	if err != nil || !bytes.Contains(code, []byte("\npackage other\n")) {
		t.Errorf("got %v and\n%s\nwant package other", err, code)
	}
}

// The worked example, a module of its own, builds and passes its tests, and the
// generator runs in it as its documentation says.
func TestExampleModule(t *testing.T) {
	if testing.Short() {
		t.Skip("short: builds another module")
	}
	mod := exampleMod(t)
	inExample(t, "build", mod, "./...")
	inExample(t, "vet", mod, "./...")
	inExample(t, "test", mod, "-count=1", "./...")

	out := t.TempDir()
	inExample(t, "run", mod, "github.com/kpidd/kpidd/gen", "-spec", "stations.spec", "-pkg", "mine", "-out", out)
	got, err := os.ReadFile(filepath.Join(out, "tree48_gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/example/tree48_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if want = bytes.Replace(want, []byte("package stations\n"), []byte("package mine\n"), 1); !bytes.Equal(got, want) {
		t.Error("go run github.com/kpidd/kpidd/gen -pkg mine: got other code than is checked in")
	}
}

// exampleMod returns the flag that takes the example's go.mod and go.sum from
// copies: a later version of a dependency of kpidd then changes no checked-in
// file.
func exampleMod(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("testdata", "example", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "-modfile=" + filepath.Join(dir, "go.mod")
}

// inExample runs the go command in the example's folder, with nothing but the
// module cache.
func inExample(t *testing.T, args ...string) {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, goTool, args...)
	cmd.Dir = filepath.Join("testdata", "example")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
