package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() { os.Exit(command(os.Args[1:], os.Stderr)) }

const usage = `usage: gen -spec FILE [-pkg NAME] -out DIR

Writes the Go files that a specification describes. They import
github.com/kpidd/kpidd/arch. docs/generated.md describes specifications.

`

// command runs the command line and returns its exit status: 0 done or help, 1 an
// error, 2 usage.
func command(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	specPath := flags.String("spec", "", "specification `FILE` to read")
	pkg := flags.String("pkg", "", "`NAME` of the package, in place of the specification's")
	out := flags.String("out", "", "folder `DIR` to write the files into; made if missing")
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() != 0:
		fmt.Fprintf(stderr, "gen: unexpected argument %q; -h explains\n", flags.Arg(0))
		return 2
	case *specPath == "" || *out == "":
		fmt.Fprintln(stderr, "gen: -spec and -out are needed; -h explains")
		return 2
	}
	if err := run(*specPath, *pkg, *out); err != nil {
		fmt.Fprintln(stderr, "gen:", err)
		return 1
	}
	return 0
}

// run emits all files in memory first, so that an error writes none.
func run(specPath, pkg, out string) error {
	files, err := generate(specPath, pkg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make folder for generated files: %w", err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(out, f.name), f.code, 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}

// generate reads the specification at path and returns the files it describes,
// in package pkg unless that is empty.
func generate(path, pkg string) ([]file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read specification: %w", err)
	}
	s, err := parseSpec(filepath.Base(path), string(text))
	if err != nil {
		return nil, err
	}
	if pkg != "" {
		if !isName(pkg) {
			return nil, fmt.Errorf("-pkg: %q is no Go name", pkg)
		}
		s.pkg = pkg
	}
	return emit(s)
}
