package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/kpidd/kpidd/"

// listed is what go list tells of a package. Deps are direct and indirect.
type listed struct {
	ImportPath    string
	Standard      bool
	Imports, Deps []string
}

// The layers of the module, lowest first: a package imports from its own layer
// and from those below it. gen stands apart.
var layers = []string{"arch", "generated", "internal", "core", "cmd"}

// cheap are the packages that programs import as a library, with all that they
// may depend on outside the module and the standard library.
var (
	cheap    = []string{"arch", "generated", "core/table", "core/pid", "core/task", "core/ns"}
	cheapMay = []string{"golang.org/x/sys", "github.com/puzpuzpuz/xsync/v3"}
	archMay  = []string{"golang.org/x/sys/cpu"}
	genMay   = []string{"github.com/dave/jennifer"}
)

// TestImportDirection holds the arrows of the source tree: arch, generated,
// core, cmd; gen is imported by nothing.
func TestImportDirection(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, stderrOf(err))
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	for _, must := range []string{"cmd/kpidd", "core/table", "arch", "gen"} {
		if !slices.ContainsFunc(pkgs, func(p listed) bool { return p.ImportPath == modulePath+must }) {
			t.Errorf("%s is not listed", must)
		}
	}
	for _, wrong := range wrongArrows(pkgs) {
		t.Error(wrong)
	}
}

// TestWrongArrows: each wrong arrow is seen.
func TestWrongArrows(t *testing.T) {
	for _, c := range []struct {
		from, to string
		wrong    bool
	}{
		{"cmd/kpidd", "core/live", false},
		{"core/live", "core/task", false},
		{"core/live", "internal/lab", false},
		{"core/table", "generated/radix", false},
		{"generated/radix", "arch", false},
		{"core/live", "cmd/kpidd", true},
		{"generated/radix", "core/pid", true},
		{"arch", "generated/seqlock", true},
		{"arch", "golang.org/x/sys/cpu", false},
		{"arch", "golang.org/x/sys/unix", true},
		{"core/live", "gen", true},
		{"cmd/kpidd", "gen", true},
		{"gen", "arch", true},
		{"gen", "github.com/dave/jennifer/jen", false},
		{"gen", "golang.org/x/sys/unix", true},
		{"core/live", "github.com/dave/jennifer/jen", true},
		{"core/task", "github.com/spf13/cobra", true},
		{"core/task", "github.com/puzpuzpuz/xsync/v3", false},
		{"cmd/kpidd", "github.com/spf13/cobra", false},
		{"elsewhere", "core/task", true},
	} {
		to := c.to
		if !strings.Contains(to, ".") {
			to = modulePath + to
		}
		p := listed{ImportPath: modulePath + c.from, Imports: []string{to}, Deps: []string{to}}
		if got := wrongArrows([]listed{p}); len(got) > 0 != c.wrong {
			t.Errorf("%s imports %s: got %q, want wrong = %v", c.from, c.to, got, c.wrong)
		}
	}
}

func wrongArrows(pkgs []listed) (wrong []string) {
	standard := map[string]bool{"C": true, "unsafe": true}
	for _, p := range pkgs {
		if p.Standard {
			standard[p.ImportPath] = true
		}
	}
	for _, p := range pkgs {
		from, ours := strings.CutPrefix(p.ImportPath, modulePath)
		if !ours {
			continue
		}
		for _, imp := range p.Imports {
			if why := wrongImport(from, imp, standard[imp]); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", from, imp, why))
			}
		}
		if !slices.ContainsFunc(cheap, func(c string) bool { return within(from, c) }) {
			continue
		}
		for _, dep := range p.Deps {
			if !standard[dep] && !strings.HasPrefix(dep, modulePath) && !withinAny(dep, cheapMay) {
				wrong = append(wrong, fmt.Sprintf("%s depends on %s: it is to be cheap to import", from, dep))
			}
		}
	}
	return wrong
}

// wrongImport says what is wrong with a direct import, or nothing.
func wrongImport(from, imp string, standard bool) string {
	to, ours := strings.CutPrefix(imp, modulePath)
	switch {
	case standard:
		return ""
	case ours && within(to, "gen"):
		return "gen is imported by nothing"
	case within(from, "gen"):
		if !withinAny(imp, genMay) {
			return "gen imports jennifer and the standard library"
		}
		return ""
	case withinAny(imp, genMay):
		return "only gen needs it"
	case !ours:
		if within(from, "arch") && !withinAny(imp, archMay) {
			return "arch stands alone"
		}
		return ""
	}
	low, high := layerOf(to), layerOf(from)
	switch {
	case high < 0:
		return from + " is in no layer"
	case low < 0:
		return to + " is in no layer"
	case low > high:
		return "the arrow points the wrong way"
	}
	return ""
}

func layerOf(path string) int {
	return slices.IndexFunc(layers, func(l string) bool { return within(path, l) })
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func withinAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return within(path, d) })
}

func stderrOf(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(e.Stderr)
	}
	return ""
}
