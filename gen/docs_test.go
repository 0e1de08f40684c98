package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docTypes returns the rows of the table of types in docs/generated.md: per type,
// as package.Name, the core packages that use it.
func docTypes(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/generated.md")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string][]string{}
	users := regexp.MustCompile("`(core/[a-z/]+)`")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Z]\\w*)` \\|.*\\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		types[m[1]] = []string{}
		for _, u := range users.FindAllStringSubmatch(m[2], -1) {
			types[m[1]] = append(types[m[1]], u[1])
		}
		if len(types[m[1]]) == 0 && m[2] != "nowhere" {
			t.Errorf("docs/generated.md: %s is used by %q, want packages or nowhere", m[1], m[2])
		}
	}
	return types
}

// docs/generated.md names every kind of block, every emitted type, and who uses
// it.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/generated.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind := range emitters {
		if !regexp.MustCompile(`(?m)^    ` + kind + ` [A-Z]`).Match(text) {
			t.Errorf("docs/generated.md has no block of kind %s", kind)
		}
	}
	types := docTypes(t)
	for specPath, out := range outputs {
		if !strings.HasPrefix(out, "generated/") {
			continue
		}
		for _, name := range specTypes(t, specPath) {
			if _, ok := types[name]; !ok {
				t.Errorf("docs/generated.md has no row for %s", name)
			}
			delete(types, name)
		}
	}
	for name := range types {
		t.Errorf("docs/generated.md has a row for %s, which no specification has", name)
	}
}

// specTypes returns the types of a specification that are not for tests.
func specTypes(t *testing.T, path string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSpec(filepath.Base(path), string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range s.blocks {
		if b.opts["for"] != "test" {
			names = append(names, s.pkg+"."+b.name)
		}
	}
	return names
}

// The packages of core use what docs/generated.md says, and nothing else. A
// package that imports none of generated is not there yet.
func TestDocumentedUse(t *testing.T) {
	types := docTypes(t)
	used := map[string][]string{} // by package of core
	err := filepath.WalkDir("../core", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../")))
		used[folder] = append(used[folder], typesIn(t, path, types)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, names := range used {
		for _, name := range names {
			if !slices.Contains(types[name], folder) {
				t.Errorf("%s uses %s, which docs/generated.md does not say", folder, name)
			}
		}
	}
	for name, folders := range types {
		for _, folder := range folders {
			if len(used[folder]) > 0 && !slices.Contains(used[folder], name) {
				t.Errorf("docs/generated.md says that %s uses %s", folder, name)
			}
		}
	}
}

// typesIn returns which types the file at path names, itself or by a constant, a
// function or an error of theirs.
func typesIn(t *testing.T, path string, types map[string][]string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if !ok {
			return true
		}
		id := x.Name + "." + strings.TrimPrefix(strings.TrimPrefix(s.Sel.Name, "New"), "Err")
		longest := ""
		for name := range types {
			if strings.HasPrefix(id, name) && len(name) > len(longest) {
				longest = name
			}
		}
		if longest != "" {
			names = append(names, longest)
		}
		return true
	})
	return names
}
