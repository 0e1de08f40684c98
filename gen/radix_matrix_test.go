package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every combination of options that a tree may have gives code that compiles.
func TestTreeMatrixCompiles(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil || testing.Short() {
		t.Skip("needs the go command, and takes some seconds")
	}
	var text strings.Builder
	text.WriteString("package matrix\n")
	n := 0
	add := func(head string, items ...string) {
		n++
		fmt.Fprintf(&text, "tree Tree%d %s\n", n, head)
		for _, item := range items {
			if item != "" {
				fmt.Fprintf(&text, "  %s\n", item)
			}
		}
	}
	for _, writers := range []string{"one", "locked"} {
		add("key=128 own=gc writers=" + writers)
		for _, own := range []string{"gc", "slab"} {
			for _, shape := range []string{"key=8 empty=keep/split 8", "key=9 empty=unlink/split 9", "key=11 empty=keep/split 4 7",
				"key=7 empty=unlink/split 2 2 3", "key=48 empty=unlink/nodes 6 2"} {
				key, levels, _ := strings.Cut(shape, "/")
				for _, free := range []string{"", "free"} {
					for _, tags := range []string{"", "tag A", "tag A\n  tag B\n  tag C"} {
						add(key+" own="+own+" writers="+writers, levels, free, tags)
					}
				}
			}
		}
	}
	add("key=20 own=mapped", "split 10 10")
	add("key=8", "split 2 6", "tag A", "tag B")

	// The files stand in a folder of this module only as far as the compiler is
	// concerned.
	files, err := emitText(text.String())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	folder, err := filepath.Abs("../generated/matrix")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.code, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(folder, f.name)] = path
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	listPath := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(listPath, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(goTool, "build", "-overlay", listPath, folder).CombinedOutput(); err != nil {
		t.Errorf("%d trees: %v\n%s", n, err, out)
	}
}
