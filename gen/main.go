package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	specPath := flag.String("spec", "", "specification `file` to read")
	out := flag.String("out", "", "`folder` to write the generated files into")
	flag.Parse()
	if *specPath == "" || *out == "" || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*specPath, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run emits all files in memory first, so that an error writes none.
func run(specPath, out string) error {
	files, err := generate(specPath)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(out, f.name), f.code, 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}

// generate reads the specification at path and returns the files it describes.
func generate(path string) ([]file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read specification: %w", err)
	}
	s, err := parseSpec(filepath.Base(path), string(text))
	if err != nil {
		return nil, err
	}
	return emit(s)
}
