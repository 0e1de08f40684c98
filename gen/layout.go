package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"
)

// width is the size and alignment of a scalar of a layout.
type width struct {
	goType string
	bytes  int
}

var widths = map[string]width{
	"u8":  {"uint8", 1},
	"u32": {"uint32", 4},
	"u64": {"uint64", 8},
	"i64": {"int64", 8},
}

// emitConst emits a block of constants, each with the block's name before its
// own:
//
//	const ABI
//	  Major u32 1  # changes when old readers cannot go on
func emitConst(f *jen.File, b *block) error {
	if err := b.allow(); err != nil {
		return err
	}
	return emitValues(f, b, 3, func(it item) (string, string, error) {
		w, ok := widths[it.words[1]]
		if !ok {
			return "", "", it.pos.errorf("%s: unknown width %q", it.words[0], it.words[1])
		}
		if _, err := strconv.ParseUint(it.words[2], 0, w.bytes*8); err != nil {
			return "", "", it.pos.errorf("%s: %q is no value of %d bits", it.words[0], it.words[2], w.bytes*8)
		}
		return w.goType, it.words[2], nil
	})
}

// emitFlags emits a block of flags, given by the numbers of their bits:
//
//	flags Flag type=u32
//	  KThread 0  # a kernel thread
func emitFlags(f *jen.File, b *block) error {
	w, err := b.typeOption()
	if err != nil {
		return err
	}
	return emitValues(f, b, 2, uniqueValue(w, w.bytes*8-1, "1 << %d"))
}

// emitEnum emits a block of values of which one holds at a time:
//
//	enum Table type=u32
//	  Starting 1  # no reader may use it yet
func emitEnum(f *jen.File, b *block) error {
	w, err := b.typeOption()
	if err != nil {
		return err
	}
	return emitValues(f, b, 2, uniqueValue(w, 255, "%d"))
}

// uniqueValue returns the reader of items NAME NUMBER that refuses a number
// given twice.
func uniqueValue(w width, top int, format string) func(it item) (string, string, error) {
	seen := map[int]string{}
	return func(it item) (string, string, error) {
		n, err := number(it.pos, it.words[0], it.words[1], 0, top)
		if err != nil {
			return "", "", err
		}
		if other, taken := seen[n]; taken {
			return "", "", it.pos.errorf("%s: %d is taken by %s", it.words[0], n, other)
		}
		seen[n] = it.words[0]
		return w.goType, fmt.Sprintf(format, n), nil
	}
}

// emitValues emits one constant for each item of so many words, as value says.
func emitValues(f *jen.File, b *block, words int, value func(it item) (goType, text string, err error)) error {
	defs := make([]jen.Code, 0, len(b.items))
	for _, it := range b.items {
		if len(it.words) != words {
			return it.pos.errorf("%s %s: want %d words, got %q", b.kind, b.name, words, strings.Join(it.words, " "))
		}
		if err := b.claim(it.pos, b.name+it.words[0]); err != nil {
			return err
		}
		goType, text, err := value(it)
		if err != nil {
			return err
		}
		def := jen.Id(b.name + it.words[0]).Id(goType).Op("=").Op(text)
		if it.doc != "" {
			def.Add(comment([]string{it.doc}))
		}
		defs = append(defs, def)
	}
	f.Add(jen.Line().Add(comment(b.doc)).Line().Const().Defs(defs...))
	return nil
}

func (b *block) typeOption() (width, error) {
	if err := b.allow("type"); err != nil {
		return width{}, err
	}
	w, ok := widths[b.opts["type"]]
	if !ok {
		return w, b.pos.errorf("%s %s: unknown width %q", b.kind, b.name, b.opts["type"])
	}
	return w, nil
}

// member is one line of a struct, at its place.
type member struct {
	name   string // empty: padding
	goType string
	offset int
	doc    string
}

// emitStruct emits a struct of a fixed layout, with assertions that hold the
// compiler to it:
//
//	struct Hot bytes=120
//	  u32       TID   # the task's number
//	  u64[7]    Rest
//	  bytes[16] Comm
//	  pad 3           # so many bytes; "pad *" fills the struct up
//	  align 128       # bytes up to the next multiple
func emitStruct(f *jen.File, b *block) error {
	size, members, err := parseStruct(b)
	if err != nil {
		return err
	}
	sizeName := b.name + "Bytes"
	f.Add(jen.Line().Commentf("// %s is the size of %s in memory.", sizeName, b.name).Line().
		Const().Id(sizeName).Op("=").Lit(size))

	var fields []jen.Code
	checks := []jen.Code{zeroCheck(jen.Qual("unsafe", "Sizeof").Call(jen.Id(b.name).Values()), sizeName)}
	for _, m := range members {
		if m.name == "" {
			fields = append(fields, jen.Id("_").Op(m.goType))
			continue
		}
		fields = append(fields, jen.Id(m.name).Op(m.goType).Comment(strings.TrimSpace(fmt.Sprintf("%d: %s", m.offset, m.doc))))
		offset := jen.Qual("unsafe", "Offsetof").Call(jen.Id(b.name).Values().Dot(m.name))
		checks = append(checks, zeroCheck(offset, strconv.Itoa(m.offset)))
	}
	f.Add(jen.Line().Add(comment(b.doc)).Line().Type().Id(b.name).Struct(fields...))
	f.Add(jen.Line().Commentf("// Every offset of %s, held by the compiler.", b.name).Line().Var().Defs(checks...))
	return nil
}

// zeroCheck returns a declaration that compiles only if a equals b.
func zeroCheck(a jen.Code, b string) *jen.Statement {
	return jen.Id("_").Op("[0]struct{}").Op("=").Op("[").Add(a).Op("-" + b + "]struct{}{}")
}

func parseStruct(b *block) (size int, members []member, err error) {
	if err := b.allow("bytes"); err != nil {
		return 0, nil, err
	}
	if err := b.claim(b.pos, b.name, b.name+"Bytes"); err != nil {
		return 0, nil, err
	}
	if size, err = b.number("bytes", 1, 1<<20); err != nil {
		return 0, nil, err
	}
	offset, largest := 0, 1
	names := map[string]bool{}
	for _, it := range b.items {
		m, bytes, align, err := parseMember(it, offset, size)
		if err != nil {
			return 0, nil, err
		}
		if offset%align != 0 {
			return 0, nil, it.pos.errorf("%s.%s at offset %d is not aligned to %d", b.name, m.name, offset, align)
		}
		if offset+bytes > size {
			return 0, nil, it.pos.errorf("%s is full: %d bytes at offset %d of %d", b.name, bytes, offset, size)
		}
		if m.name != "" && names[m.name] {
			return 0, nil, it.pos.errorf("%s.%s given twice", b.name, m.name)
		}
		names[m.name] = true
		m.offset = offset
		offset += bytes
		largest = max(largest, align)
		if bytes > 0 {
			members = append(members, m)
		}
	}
	switch {
	case offset != size:
		return 0, nil, b.pos.errorf("struct %s has %d bytes of fields, want %d", b.name, offset, size)
	case size%largest != 0:
		return 0, nil, b.pos.errorf("struct %s of %d bytes is not a multiple of its alignment %d", b.name, size, largest)
	}
	return size, members, nil
}

// parseMember returns what an item puts at offset of a struct of size bytes.
func parseMember(it item, offset, size int) (m member, bytes, align int, err error) {
	if len(it.words) != 2 {
		return m, 0, 0, it.pos.errorf("want a width and a name, got %q", strings.Join(it.words, " "))
	}
	switch kind, arg := it.words[0], it.words[1]; kind {
	case "pad":
		if bytes = size - offset; arg != "*" {
			bytes, err = number(it.pos, "pad", arg, 1, size)
		}
		return member{goType: fmt.Sprintf("[%d]byte", bytes)}, bytes, 1, err
	case "align":
		to, err := number(it.pos, "align", arg, 1, 4096)
		if err != nil {
			return m, 0, 0, err
		}
		bytes = (to - offset%to) % to
		return member{goType: fmt.Sprintf("[%d]byte", bytes)}, bytes, 1, nil
	default:
		if !isExported(arg) {
			return m, 0, 0, it.pos.errorf("%q is no exported Go name", arg)
		}
		goType, bytes, align, err := parseWidth(it.pos, kind)
		return member{name: arg, goType: goType, doc: it.doc}, bytes, align, err
	}
}

// parseWidth reads u32, u32[N] and bytes[N].
func parseWidth(at pos, text string) (goType string, bytes, align int, err error) {
	elem, count, isArray := strings.Cut(text, "[")
	w, ok := widths[elem]
	if elem == "bytes" && isArray {
		w, ok = width{"byte", 1}, true
	}
	if !ok {
		return "", 0, 0, at.errorf("unknown width %q", text)
	}
	if !isArray {
		return w.goType, w.bytes, w.bytes, nil
	}
	count, closed := strings.CutSuffix(count, "]")
	if !closed {
		return "", 0, 0, at.errorf("unknown width %q", text)
	}
	n, err := number(at, "length of "+elem, count, 1, 1<<16)
	return fmt.Sprintf("[%d]%s", n, w.goType), n * w.bytes, w.bytes, err
}
