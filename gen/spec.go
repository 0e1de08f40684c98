package main

import (
	"fmt"
	"go/token"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A specification is plain text. Its first line of content names the Go
// package; blocks follow. A line that starts in the first column opens a block
// (kind, name, options key=value); indented lines are its items. "# " begins a
// comment: on lines of its own above a block it is the block's doc comment, at
// the end of an item the item's.
//
//	package radix
//
//	# Tree22 maps the pid numbers to slots.
//	tree Tree22
//	  split 11 11
//	  tag   TGID   # group leaders
type spec struct {
	file   string
	pkg    string
	blocks []*block
	names  map[string]pos // Go names that the blocks emit
}

// block is one thing to emit.
type block struct {
	spec  *spec
	pos   pos
	kind  string
	name  string
	opts  map[string]string
	doc   []string
	items []item
}

// item is one line of a block.
type item struct {
	pos   pos
	words []string // at least one
	doc   string
}

// pos is a line of a specification, for errors.
type pos struct {
	file string
	line int
}

// errorf returns an error of the form file:line: reason.
func (p pos) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.file, p.line, fmt.Sprintf(format, args...))
}

func parseSpec(file, text string) (*spec, error) {
	s := &spec{file: file, names: map[string]pos{}}
	var doc []string
	for i, line := range strings.Split(text, "\n") {
		at := pos{file, i + 1}
		if bad := strings.IndexFunc(line, notText); bad >= 0 {
			return nil, at.errorf("byte %d is no printable text", bad+1)
		}
		content, comment, hasComment := strings.Cut(line, "#")
		comment = strings.TrimSpace(comment)
		words := strings.Fields(content)
		indented := content != strings.TrimLeft(content, " \t")
		var err error
		switch {
		case len(words) == 0 && hasComment:
			doc = append(doc, comment)
			continue
		case len(words) == 0:
		case indented:
			err = s.addItem(at, words, comment)
		case s.pkg == "":
			err = s.setPackage(at, words)
		default:
			err = s.addBlock(at, words, doc)
		}
		if err != nil {
			return nil, err
		}
		doc = nil
	}
	if len(s.blocks) == 0 {
		return nil, pos{file, 1}.errorf("no block to emit")
	}
	return s, nil
}

// notText reports whether r has no place in a specification, because it would
// have none in Go source.
func notText(r rune) bool {
	return r == utf8.RuneError || r == '\ufeff' || r != '\t' && unicode.IsControl(r)
}

func (s *spec) setPackage(at pos, words []string) error {
	if len(words) != 2 || words[0] != "package" || !isName(words[1]) {
		return at.errorf("want %q first, got %q", "package NAME", strings.Join(words, " "))
	}
	s.pkg = words[1]
	return nil
}

func (s *spec) addBlock(at pos, words, doc []string) error {
	if len(words) < 2 {
		return at.errorf("block %q has no name", words[0])
	}
	b := &block{spec: s, pos: at, kind: words[0], name: words[1], opts: map[string]string{}, doc: doc}
	if !isName(b.name) {
		return at.errorf("%q is no Go name", b.name)
	}
	for _, w := range words[2:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" || value == "" {
			return at.errorf("option %q is not key=value", w)
		}
		if _, dup := b.opts[key]; dup {
			return at.errorf("option %q given twice", key)
		}
		b.opts[key] = value
	}
	s.blocks = append(s.blocks, b)
	return nil
}

func (s *spec) addItem(at pos, words []string, doc string) error {
	if len(s.blocks) == 0 {
		return at.errorf("item %q outside a block", words[0])
	}
	b := s.blocks[len(s.blocks)-1]
	b.items = append(b.items, item{pos: at, words: words, doc: doc})
	return nil
}

// claim takes names for what is emitted for the line at, and refuses those that
// are taken in this package or no exported Go names.
func (b *block) claim(at pos, names ...string) error {
	for _, name := range names {
		if !isExported(name) {
			return at.errorf("%q is no exported Go name", name)
		}
		if other, taken := b.spec.names[name]; taken {
			return at.errorf("name %s is taken by line %d", name, other.line)
		}
		b.spec.names[name] = at
	}
	return nil
}

// allow refuses options that the kind of block does not know.
func (b *block) allow(keys ...string) error {
next:
	for key := range b.opts {
		for _, k := range keys {
			if key == k {
				continue next
			}
		}
		return b.pos.errorf("%s %s: unknown option %q", b.kind, b.name, key)
	}
	return nil
}

// number returns the option key as a number from min to max.
func (b *block) number(key string, min, max int) (int, error) {
	value, ok := b.opts[key]
	if !ok {
		return 0, b.pos.errorf("%s %s: option %s=N is missing", b.kind, b.name, key)
	}
	return number(b.pos, key, value, min, max)
}

func number(at pos, what, value string, min, max int) (int, error) {
	n, err := strconv.ParseInt(value, 0, 64)
	if err != nil || n < int64(min) || n > int64(max) {
		return 0, at.errorf("%s is %q, want a number from %d to %d", what, value, min, max)
	}
	return int(n), nil
}

// isName reports whether s is a plain ASCII identifier.
func isName(s string) bool {
	if token.IsKeyword(s) || s == "_" {
		return false
	}
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		digit := '0' <= c && c <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return s != ""
}

// isExported reports whether s is an identifier that begins with a capital.
func isExported(s string) bool {
	return isName(s) && 'A' <= s[0] && s[0] <= 'Z'
}
