package main

import (
	"strings"

	"github.com/dave/jennifer/jen"
)

// flags are the conditions of a text: which of its lines are emitted.
type flags map[string]bool

// text returns declarations written as they are emitted. Beside the {names} of
// src, a line may begin with conditions: [free] is there only with the flag free,
// [!free] only without it. The names of a line are replaced last, so a condition
// costs nothing in the emitted code.
func (w writer) text(on flags, text string) *jen.Statement {
	return jen.Line().Add(w.src(strings.Join(on.lines(text), "\n")))
}

// lines returns the lines of text whose conditions hold.
func (on flags) lines(text string) []string {
	var kept []string
	for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		if line, ok := on.keep(line); ok {
			kept = append(kept, line)
		}
	}
	return kept
}

// keep reports whether the conditions at the head of line hold, and returns the
// rest of it.
func (on flags) keep(line string) (rest string, ok bool) {
	for strings.HasPrefix(line, "[") {
		name, after, found := strings.Cut(line[1:], "]")
		if !found {
			break
		}
		want := !strings.HasPrefix(name, "!")
		if on[strings.TrimPrefix(name, "!")] != want {
			return "", false
		}
		line = after
	}
	return line, true
}

// with returns the flags and some more that are set.
func (on flags) with(names ...string) flags {
	more := make(flags, len(on)+len(names))
	for name, set := range on {
		more[name] = set
	}
	for _, name := range names {
		more[name] = true
	}
	return more
}

// docText returns the lines of a block's doc and of a header as a comment. The
// paragraphs of the header are filled; its indented lines stay.
func docText(doc []string, header string) string {
	lines := append([]string{}, doc...)
	if len(doc) > 0 {
		lines = append(lines, "")
	}
	var words []string
	flush := func() {
		lines = append(lines, fill(words)...)
		words = nil
	}
	for _, line := range strings.Split(header, "\n") {
		if line != "" && line[0] != '\t' {
			words = append(words, strings.Fields(line)...)
			continue
		}
		flush()
		lines = append(lines, line)
	}
	flush()
	for i, line := range lines {
		lines[i] = strings.TrimRight("// "+line, " ")
		if strings.HasPrefix(line, "\t") {
			lines[i] = "//" + line
		}
	}
	return strings.Join(lines, "\n")
}

// fill puts words into lines of at most 78 bytes.
func fill(words []string) (lines []string) {
	for _, word := range words {
		last := len(lines) - 1
		if last < 0 || len(lines[last])+1+len(word) > 78 {
			lines = append(lines, word)
		} else {
			lines[last] += " " + word
		}
	}
	return lines
}
