package main

import (
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"
)

// tree is a block of kind "tree" with own=mapped, or without own: a two-level
// radix tree of 32-bit slot numbers in memory of the caller. heapTree and hashTree
// are the others.
//
//	tree Tree22 key=22 own=mapped
//	  split 11 11   # bits of the page number, bits of the slot within it
//	  tag   TGID    # none to four
//
// for=test puts it into a _test.go file, out of every product.
type tree struct {
	name               string
	dirBits, pageBits  int
	tags               []tag
	busted             bool // ClearTag clears the summary bit without a look at the other words
	dirWords, pageWord int
}

type tag struct{ name, doc string }

const tagsMax = 4

func parseTree(b *block) (tree, error) {
	t := tree{name: b.name}
	if err := b.allow("key", "own", "for", "busted", "delay"); err != nil {
		return t, err
	}
	if err := b.claim(b.pos, b.name, "New"+b.name, "Err"+b.name+"Key", "Err"+b.name+"Slot"); err != nil {
		return t, err
	}
	for _, suffix := range []string{"Keys", "Pages", "PageKeys", "Tags", "Tag", "Entry", "Memory",
		"DirBytes", "TagBytes", "SlotBytes", "PageTagBytes", "PageSlotBytes"} {
		if err := b.claim(b.pos, b.name+suffix); err != nil {
			return t, err
		}
	}
	busted, err := parseBusted(b, "recheck")
	if err != nil {
		return t, err
	}
	t.busted = busted != ""
	keyBits, err := b.number("key", 4, 28)
	if err != nil {
		return t, err
	}
	for _, it := range b.items {
		switch it.words[0] {
		case "split":
			err = t.parseSplit(it, keyBits)
		case "tag":
			t.tags, err = parseTag(b, it, t.tags)
		default:
			err = it.pos.errorf("tree %s: unknown item %q", b.name, it.words[0])
		}
		if err != nil {
			return t, err
		}
	}
	if t.busted && len(t.tags) == 0 {
		return t, b.pos.errorf("tree %s: busted=recheck needs a tag", b.name)
	}
	if t.dirBits == 0 {
		return t, b.pos.errorf("tree %s: item split is missing", b.name)
	}
	return t, nil
}

func (t *tree) parseSplit(it item, keyBits int) error {
	if t.dirBits != 0 {
		return it.pos.errorf("tree %s: split given twice", t.name)
	}
	if len(it.words) != 3 {
		return it.pos.errorf("tree %s: split into %d levels, want 2", t.name, len(it.words)-1)
	}
	var err error
	if t.dirBits, err = number(it.pos, "split", it.words[1], 2, 16); err != nil {
		return err
	}
	if t.pageBits, err = number(it.pos, "split", it.words[2], 2, 16); err != nil {
		return err
	}
	if t.dirBits+t.pageBits != keyBits {
		return it.pos.errorf("tree %s: split %d + %d is not the key's %d bits", t.name, t.dirBits, t.pageBits, keyBits)
	}
	t.dirWords = max(1, 1<<t.dirBits/64)
	t.pageWord = max(1, 1<<t.pageBits/64)
	return nil
}

// parseTag reads an item tag and returns tags with it.
func parseTag(b *block, it item, tags []tag) ([]tag, error) {
	if len(it.words) != 2 {
		return tags, it.pos.errorf("tree %s: want one name after tag, got %q", b.name, strings.Join(it.words[1:], " "))
	}
	if len(tags) == tagsMax {
		return tags, it.pos.errorf("tree %s: more than %d tags", b.name, tagsMax)
	}
	return append(tags, tag{it.words[1], it.doc}), b.claim(it.pos, b.name+it.words[1])
}

// regionBytes is the distance of the directory's bit maps from each other: the
// map itself and 128 bytes between, so that no two are fetched together.
func (t *tree) regionBytes() int { return (t.dirWords*8+127)/128*128 + 128 }

// groupSlots is how many slots GangAll looks at in one step.
func (t *tree) groupSlots() int { return min(8, 1<<t.pageBits) }

func (t *tree) writer() writer {
	// Bit maps of less than a word: the bits beyond are never looked at.
	dirMask, leafMask := "", ""
	if t.dirBits < 6 {
		dirMask = " & (1<<" + strconv.Itoa(1<<t.dirBits) + " - 1)"
	}
	if t.pageBits < 6 {
		leafMask = " & (1<<" + strconv.Itoa(1<<t.pageBits) + " - 1)"
	}
	return newWriter(map[string]any{
		"T":            t.name,
		"t":            strings.ToLower(t.name[:1]) + t.name[1:],
		"keyBits":      t.dirBits + t.pageBits,
		"dirBits":      t.dirBits,
		"pageBits":     t.pageBits,
		"tags":         len(t.tags),
		"tagsText":     tagsText(t.tags),
		"keys":         1 << (t.dirBits + t.pageBits),
		"pages":        1 << t.dirBits,
		"pageKeys":     1 << t.pageBits,
		"dirWords":     t.dirWords,
		"pageWords":    t.pageWord,
		"dirMask":      dirMask,
		"leafMask":     leafMask,
		"region":       t.regionBytes(),
		"group":        t.groupSlots(),
		"pageTagBytes": t.pageWord * 8,
		"P":            "",
		"K":            "uint32",
		"Val":          "uint32",
		"Field":        "Slot",
	})
}

func tagsText(tags []tag) string {
	switch len(tags) {
	case 0:
		return "no tags"
	case 1:
		return "one tag"
	}
	return strconv.Itoa(len(tags)) + " tags"
}

func emitTree(f *jen.File, b *block) error {
	switch own := b.opts["own"]; {
	case own == "" || own == "mapped":
		return emitMappedTree(f, b)
	case b.opts["key"] == "128":
		return emitHashTree(f, b)
	default:
		return emitHeapTree(f, b)
	}
}

func emitMappedTree(f *jen.File, b *block) error {
	t, err := parseTree(b)
	if err != nil {
		return err
	}
	w := t.writer()
	t.emitConsts(f, w)
	t.emitTypes(f, w, b.doc)
	t.emitNew(f, w)
	t.emitReaders(f, w)
	emitAll(f, w, flags{"tags": len(t.tags) > 0})
	t.emitWriters(f, w)
	t.emitTagWriters(f, w)
	return nil
}

func (t *tree) emitConsts(f *jen.File, w writer) {
	f.Add(jen.Line().Add(w.note(`
Shape of {T} and sizes of the memory that it is laid in, in bytes.`)).Line().Const().Defs(
		w.line("{T}Keys = 1 << {keyBits}", "keys are 0 to {T}Keys-1"),
		w.src("{T}Pages = 1 << {dirBits}").Comment("leaf pages"),
		w.src("{T}PageKeys = 1 << {pageBits}").Comment("keys of a leaf page"),
		w.src("{T}Tags = {tags}"),
		jen.Line(),
		w.src("{T}PageTagBytes = {pageTagBytes}").Comment("one tag's bits of a leaf page"),
		w.src("{T}PageSlotBytes = 4 * {T}PageKeys").Comment("slot numbers of a leaf page"),
		w.src("{T}DirBytes = (1 + {T}Tags) * {t}RegionBytes").Comment("present bits and the tags' summaries"),
		w.src("{T}TagBytes = {T}Tags * {T}Pages * {T}PageTagBytes"),
		w.src("{T}SlotBytes = {T}Pages * {T}PageSlotBytes"),
		jen.Line(),
		w.src("{t}DirWords = {dirWords}"),
		w.src("{t}PageWords = {pageWords}"),
		w.src("{t}RegionBytes = {region}").Comment("a bit map of the directory and its distance to the next"),
	))
	f.Add(jen.Line().Add(w.note(`
Errors of Insert and InsertNew, to be compared with errors.Is.`)).Line().Var().Defs(
		w.src(`Err{T}Key = errors.New("radix: key is beyond {keyBits} bits")`),
		w.src(`Err{T}Slot = errors.New("radix: slot 0 means absent")`),
	))
	emitTagType(f, w, t.tags)
}

func emitTagType(f *jen.File, w writer, tags []tag) {
	if len(tags) == 0 {
		return
	}
	defs := make([]jen.Code, 0, len(tags))
	for i, tag := range tags {
		def := w.src("{T}" + tag.name + " {T}Tag = " + strconv.Itoa(i))
		if tag.doc != "" {
			def.Add(comment([]string{tag.doc}))
		}
		defs = append(defs, def)
	}
	f.Add(jen.Line().Add(w.note("\n{T}Tag names one bit that each entry carries. Methods panic when they are given a\nnumber that is none of its constants.")).Line().Type().Add(w.src("{T}Tag int")))
	f.Add(jen.Line().Add(w.note("The tags of {T}.")).Line().Const().Defs(defs...))
}

func (t *tree) emitTypes(f *jen.File, w writer, doc []string) {
	fields := []jen.Code{
		w.note("All fields are immutable; what they point to is atomic."),
		w.src("present *[{t}DirWords]uint64").Comment("a bit per leaf page"),
	}
	memory := []jen.Code{
		w.line("Dir []byte", "{T}DirBytes"),
	}
	if len(t.tags) > 0 {
		fields = append(fields,
			w.src("sums [{T}Tags]*[{t}DirWords]uint64").Comment("per tag, a bit per leaf page"),
			w.src("tags [{T}Tags]*[{T}Pages][{t}PageWords]uint64").Comment("per tag and leaf page, a bit per slot"))
		memory = append(memory, w.line("Tags []byte", "{T}TagBytes: tag by tag, page by page"))
	}
	fields = append(fields,
		w.src("slots *[{T}Keys]uint32"),
		w.src("pairs *[{T}Keys / 2]uint64").Comment("the same memory, two slots a word"),
		jen.Line(),
		w.src("back func(page int) error").Comment("the writer's"),
	)
	memory = append(memory, w.line("Slots []byte", "{T}SlotBytes: page by page"))

	header := w.note(treeHeader)
	if len(doc) > 0 {
		header = comment(append(doc, "")).Line().Add(header)
	}
	f.Add(jen.Line().Add(header).Line().Type().Id(t.name).Struct(fields...))
	f.Add(jen.Line().Add(w.note(`
{T}Memory is the memory that a tree lies in: three regions, each aligned to 8
bytes and at least as long as its constant says, all zeros for an empty tree.`)).Line().Type().Add(
		w.src("{T}Memory")).Struct(memory...))
	f.Add(jen.Line().Add(w.note(`
{T}Entry is an entry as the gang walks report it.`)).Line().Type().Add(
		w.src("{T}Entry")).Struct(w.src("Key, Slot uint32")))
}

func (t *tree) emitNew(f *jen.File, w writer) {
	body := []jen.Code{
		w.src(`dir, err := {t}Region("directory", mem.Dir, {T}DirBytes)`),
		ifErr("nil"),
	}
	if len(t.tags) > 0 {
		body = append(body, w.src(`tags, err := {t}Region("tag", mem.Tags, {T}TagBytes)`), ifErr("nil"))
	}
	body = append(body,
		w.src(`slots, err := {t}Region("slot", mem.Slots, {T}SlotBytes)`),
		ifErr("nil"),
		w.src("t := &{T}").Values(jen.Dict{
			jen.Id("present"): w.src("(*[{t}DirWords]uint64)(dir)"),
			jen.Id("slots"):   w.src("(*[{T}Keys]uint32)(slots)"),
			jen.Id("pairs"):   w.src("(*[{T}Keys / 2]uint64)(slots)"),
			jen.Id("back"):    w.src("back"),
		}),
	)
	if len(t.tags) > 0 {
		body = append(body, jen.For(w.src("tag := range {T}Tags")).Block(
			w.src("t.sums[tag] = (*[{t}DirWords]uint64)(unsafe.Add(dir, (1+tag)*{t}RegionBytes))"),
			w.src("t.tags[tag] = (*[{T}Pages][{t}PageWords]uint64)(unsafe.Add(tags, tag*{T}Pages*{T}PageTagBytes))"),
		))
	}
	body = append(body, w.src("return t, nil"))
	f.Add(w.fn(`
New{T} returns a tree over mem, as it stands there. It stores nothing, so mem
may be a read-only mapping; such a tree must not be written. The writer gives
back, which is called before the first store into each leaf page to provide its
memory (slots and tags), and whose error makes the insertion fail; nil says that
all memory is there. A region that is too short or not aligned is an error.`,
		"New{T}(mem {T}Memory, back func(page int) error) (*{T}, error)", body...))
	f.Add(jen.Line().Func().Add(w.src("{t}Region(name string, mem []byte, size int) (unsafe.Pointer, error)")).Block(
		jen.If(w.src("len(mem) < size")).Block(
			w.src(`return nil, fmt.Errorf("radix: %s region of %d bytes, want %d", name, len(mem), size)`),
		),
		w.src("p := unsafe.Pointer(unsafe.SliceData(mem))"),
		jen.If(w.src("uintptr(p)%8 != 0")).Block(
			w.src(`return nil, fmt.Errorf("radix: %s region at %p is not aligned to 8 bytes", name, p)`),
		),
		w.src("return p, nil"),
	))
}

func (t *tree) emitReaders(f *jen.File, w writer) {
	f.Add(w.text(nil, `
// Lookup returns the slot of key, 0 if it is absent or beyond {keyBits} bits. It is
// small enough to be inlined.
func (t *{T}) Lookup(key uint32) uint32 {
	if key >= {T}Keys || !t.hasPage(key>>{pageBits}) {
		return 0
	}
	// &t.slots[key] without its check for nil, which New{T} has made.
	slot := (*uint32)(unsafe.Add(unsafe.Pointer(t.slots), 4*uintptr(key)))
	return atomic.LoadUint32(slot) // D
}`))
	f.Add(w.fn(`
Pages returns the number of leaf pages that are present.`, "(t *{T}) Pages() int",
		w.src("n := 0"),
		jen.For(w.src("w := range t.present")).Block(
			w.src("n += bits.OnesCount64(atomic.LoadUint64(&t.present[w]))"),
		),
		w.src("return n"),
	))
	f.Add(w.text(nil, `
// hasPage reports whether a page below {T}Pages is present.
func (t *{T}) hasPage(page uint32) bool {
	// &t.present[page>>6] without its checks.
	word := (*uint64)(unsafe.Add(unsafe.Pointer(t.present), page>>6*8))
	return atomic.LoadUint64(word)>>(page&63)&1 != 0 // B
}`))
	if len(t.tags) > 0 {
		t.emitTagReaders(f, w)
	}
	f.Add(w.fn(`
GangAll fills buf with the entries of keys >= from, tagged or not, in the order
of their keys, and returns their number. While more, the walk resumes at next.`,
		"(t *{T}) GangAll(from uint32, buf []{T}Entry) (n int, next uint32, more bool)",
		t.walkPages(w, "", []jen.Code{
			w.src("got, next := t.gangAllInLeaf(page, from, buf[n:])"),
			w.src("n += got"),
			jen.If(w.src("next < {T}Keys")).Block(w.src("return n, next, true")),
		}, "return n, {T}Keys, false")...))
	f.Add(jen.Line().Add(w.note(`
gangAllInLeaf is GangAll for one page; next is {T}Keys when buf had room for all.`)).Line().Func().Add(
		w.src("(t *{T}) gangAllInLeaf(page, from uint32, buf []{T}Entry) (n int, next uint32)")).Block(
		w.src("key := max(from, page<<{pageBits})"),
		w.src("end := (page + 1) << {pageBits}"),
		jen.For(w.src("key < end")).Block(
			jen.If(w.src("key%{group} == 0 && t.groupEmpty(key)")).Block(
				w.src("key += {group}"),
				jen.Continue(),
			),
			w.src("slot := atomic.LoadUint32(&t.slots[key])").Comment("D"),
			jen.If(w.src("slot != 0")).Block(
				jen.If(w.src("n == len(buf)")).Block(w.src("return n, key")),
				w.src("buf[n] = {T}Entry{key, slot}"),
				w.src("n++"),
			),
			w.src("key++"),
		),
		w.src("return n, {T}Keys"),
	))

	var loads []string
	for i := range t.groupSlots() / 2 {
		loads = append(loads, "atomic.LoadUint64(&t.pairs[pair+"+strconv.Itoa(i)+"])")
	}
	f.Add(jen.Line().Add(w.note(`
groupEmpty reports whether the {group} slots from key on are all 0. It reads two a
load, which any byte order allows, since only zero is looked for.`)).Line().Func().Add(
		w.src("(t *{T}) groupEmpty(key uint32) bool")).Block(
		w.src("pair := key / 2"),
		w.src("return "+strings.ReplaceAll(strings.Join(loads, "|"), "+0]", "]")+" == 0"),
	))
}

// walkPages emits a walk over the pages that are present from the page of from
// on, and in tags' walks those whose summary bit is set. Each is what happens
// with page.
func (t *tree) walkPages(w writer, summary string, each []jen.Code, end string) []jen.Code {
	pages := "atomic.LoadUint64(&t.present[w]){dirMask}"
	if summary != "" {
		// The summary first: a page whose summary bit is seen is present.
		pages = "atomic.LoadUint64(&" + summary + "[w]) & " + pages
	}
	each = append([]jen.Code{w.src("page := w<<6 | uint32(bits.TrailingZeros64(pages))")}, each...)
	return []jen.Code{
		w.src("first := from >> {pageBits}"),
		jen.For(w.src("w := first >> 6; w < {t}DirWords; w++")).Block(
			w.src("pages := "+pages).Comment("B"),
			jen.If(w.src("w == first>>6")).Block(w.src("pages &= ^uint64(0) << (first & 63)")),
			jen.For(w.src("; pages != 0; pages &= pages - 1")).Block(each...),
		),
		w.src(end),
	}
}

// walkLeaf emits a walk over the tagged entries of one page from from on. Entry
// is what happens with bit, the key within the page, and slot.
func (t *tree) walkLeaf(w writer, entry []jen.Code, end string) []jen.Code {
	each := append([]jen.Code{
		w.src("bit := i<<6 | uint32(bits.TrailingZeros64(set))"),
		w.src("slot := atomic.LoadUint32(&slots[bit%{T}PageKeys])").Comment("D"),
		jen.If(w.src("slot == 0")).Block(jen.Continue().Comment("stale")),
	}, entry...)
	return []jen.Code{
		w.src("slots := (*[{T}PageKeys]uint32)(t.slots[page<<{pageBits}:])"),
		w.src("at := max(from, page<<{pageBits}) % {T}PageKeys"),
		w.src("mask := ^uint64(0) << (at & 63)"),
		jen.For(w.src("i := at >> 6; i < {t}PageWords; i++")).Block(
			w.src("set := atomic.LoadUint64(&leaf[i]) & mask{leafMask}").Comment("F"),
			w.src("mask = ^uint64(0)"),
			jen.For(w.src("; set != 0; set &= set - 1")).Block(each...),
		),
		w.src(end),
	}
}

func (t *tree) emitTagReaders(f *jen.File, w writer) {
	f.Add(w.fn(`
Tagged reports whether key has the tag. Keys that are absent have none.`,
		"(t *{T}) Tagged(key uint32, tag {T}Tag) bool",
		jen.If(w.src("key >= {T}Keys || !t.hasPage(key>>{pageBits})")).Block(w.src("return false")),
		w.src("word := &t.tags[tag][key>>{pageBits}][key%{T}PageKeys>>6]"),
		w.src("return atomic.LoadUint64(word)>>(key%{T}PageKeys&63)&1 != 0").Comment("F"),
	))
	f.Add(w.fn(`
NextTagged returns the lowest entry >= from that has the tag. ok is false when
there is none up to the end of the keys; the search never wraps.`,
		"(t *{T}) NextTagged(from uint32, tag {T}Tag) (key, slot uint32, ok bool)",
		append([]jen.Code{
			jen.If(w.src("from >= {T}Keys")).Block(w.src("return 0, 0, false")),
			w.src("sum, tags := t.sums[tag], t.tags[tag]"),
			w.note("Most often the next one is near."),
			jen.If(w.src("page := from >> {pageBits}; t.hasPage(page)")).Block(
				jen.If(w.src("key, slot, ok = t.nextInLeaf(page, from, &tags[page]); ok")).Block(
					w.src("return key, slot, true")),
			),
			w.src("from = (from>>{pageBits} + 1) << {pageBits}"),
		}, t.walkPages(w, "sum", []jen.Code{
			jen.If(w.src("key, slot, ok = t.nextInLeaf(page, from, &tags[page]); ok")).Block(
				w.src("return key, slot, true")),
		}, "return 0, 0, false")...)...))
	f.Add(jen.Line().Func().Add(
		w.src("(t *{T}) nextInLeaf(page, from uint32, leaf *[{t}PageWords]uint64) (key, slot uint32, ok bool)")).Block(
		t.walkLeaf(w, []jen.Code{w.src("return page<<{pageBits} | bit, slot, true")}, "return 0, 0, false")...))
	f.Add(w.fn(`
Gang fills buf with the entries >= from that have the tag, in the order of their
keys, and returns their number. While more, the walk resumes at next.`,
		"(t *{T}) Gang(from uint32, tag {T}Tag, buf []{T}Entry) (n int, next uint32, more bool)",
		append([]jen.Code{w.src("sum, tags := t.sums[tag], t.tags[tag]")}, t.walkPages(w, "sum", []jen.Code{
			w.src("got, next := t.gangInLeaf(page, from, &tags[page], buf[n:])"),
			w.src("n += got"),
			jen.If(w.src("next < {T}Keys")).Block(w.src("return n, next, true")),
		}, "return n, {T}Keys, false")...)...))
	f.Add(jen.Line().Add(w.note(`
gangInLeaf is Gang for one page; next is {T}Keys when buf had room for all.`)).Line().Func().Add(
		w.src("(t *{T}) gangInLeaf(page, from uint32, leaf *[{t}PageWords]uint64, buf []{T}Entry) (n int, next uint32)")).Block(
		t.walkLeaf(w, []jen.Code{
			jen.If(w.src("n >= len(buf)")).Block(w.src("return n, page<<{pageBits} | bit")),
			w.src("buf[n] = {T}Entry{page<<{pageBits} | bit, slot}"),
			w.src("n++"),
		}, "return n, {T}Keys")...))
}

func (t *tree) emitWriters(f *jen.File, w writer) {
	f.Add(w.fn(`
Insert sets the slot of key and returns the one before, 0 if key was absent. The
tags of key stay as they are. On an error nothing has changed: Err{T}Key,
Err{T}Slot, or that of back, wrapped.`,
		"(t *{T}) Insert(key, slot uint32) (old uint32, err error)",
		jen.If(w.src("err := t.admit(key, slot); err != nil")).Block(w.src("return 0, err")),
		w.src("old = atomic.LoadUint32(&t.slots[key])"),
		w.src("atomic.StoreUint32(&t.slots[key], slot)").Comment("C"),
		w.src("return old, nil"),
	))
	f.Add(w.fn(`
InsertNew sets the slot of a key that the caller knows to be absent, without
looking. Errors are those of Insert.`,
		"(t *{T}) InsertNew(key, slot uint32) error",
		jen.If(w.src("err := t.admit(key, slot); err != nil")).Block(w.src("return err")),
		jen.If(w.src("arch.Invariants && atomic.LoadUint32(&t.slots[key]) != 0")).Block(
			w.src(`panic("radix: I1: new key is present")`),
		),
		w.src("atomic.StoreUint32(&t.slots[key], slot)").Comment("C"),
		w.src("return nil"),
	))
	clears := []jen.Code{}
	for _, tag := range t.tags {
		clears = append(clears, w.src("t.ClearTag(key, {T}"+tag.name+")"))
	}
	doc := `
Delete clears all tags of key, then its slot, and returns the slot, 0 if key was
absent. Its leaf page stays present.`
	if len(t.tags) == 0 {
		doc = `
Delete clears the slot of key and returns it, 0 if key was absent. Its leaf page
stays present.`
	}
	body := []jen.Code{
		w.src("old = t.Lookup(key)"),
		jen.If(w.src("old == 0")).Block(w.src("return 0")),
	}
	body = append(body, clears...)
	body = append(body, w.src("atomic.StoreUint32(&t.slots[key], 0)"), w.src("return old"))
	f.Add(w.fn(doc, "(t *{T}) Delete(key uint32) (old uint32)", body...))

	f.Add(jen.Line().Add(w.note(`
admit checks an insertion and makes sure that its leaf page is present.`)).Line().Func().Add(
		w.src("(t *{T}) admit(key, slot uint32) error")).Block(
		jen.If(w.src("key < {T}Keys && slot != 0 && t.hasPage(key>>{pageBits})")).Block(w.src("return nil")),
		w.src("return t.admitSlow(key, slot)"),
	))
	f.Add(jen.Line().Comment("//go:noinline").Line().Func().Add(
		w.src("(t *{T}) admitSlow(key, slot uint32) error")).Block(
		jen.If(w.src("key >= {T}Keys")).Block(
			w.src(`return fmt.Errorf("insert key %d: %w", key, Err{T}Key)`)),
		jen.If(w.src("slot == 0")).Block(
			w.src(`return fmt.Errorf("insert key %d: %w", key, Err{T}Slot)`)),
		w.src("page := key >> {pageBits}"),
		jen.If(w.src("t.back != nil")).Block(
			jen.If(w.src("err := t.back(int(page)); err != nil")).Block(
				w.src(`return fmt.Errorf("radix: back leaf page %d: %w", page, err)`)),
		),
		w.src("word := &t.present[page>>6]"),
		w.src("atomic.StoreUint64(word, atomic.LoadUint64(word)|1<<(page&63))").Comment("A"),
		w.src("return nil"),
	))
}

func (t *tree) emitTagWriters(f *jen.File, w writer) {
	if len(t.tags) == 0 {
		return
	}
	f.Add(w.fn(`
SetTag sets the tag on key, which must be present.`,
		"(t *{T}) SetTag(key uint32, tag {T}Tag)",
		jen.If(w.src("t.Lookup(key) == 0")).Block(w.src(`panic("radix: I2: tag on empty slot")`)),
		w.src("page, bit := key>>{pageBits}, key%{T}PageKeys"),
		w.src("word := &t.tags[tag][page][bit>>6]"),
		w.src("arch.StoreRelease64(word, atomic.LoadUint64(word)|1<<(bit&63))").Comment("E"),
		w.src("sum := &t.sums[tag][page>>6]"),
		jen.If(w.src("old := atomic.LoadUint64(sum); old>>(page&63)&1 == 0")).Block(
			w.src("arch.StoreRelease64(sum, old|1<<(page&63))").Comment("G"),
		),
	))
	f.Add(w.text(flags{"recheck": t.busted}, `
// ClearTag clears the tag on key; nothing happens where it is not set.
func (t *{T}) ClearTag(key uint32, tag {T}Tag) {
	if !t.Tagged(key, tag) {
		return
	}
	page, bit := key>>{pageBits}, key%{T}PageKeys
	leaf := &t.tags[tag][page]
	left := atomic.LoadUint64(&leaf[bit>>6]) &^ (1 << (bit & 63))
	arch.StoreRelease64(&leaf[bit>>6], left)
	if left != 0 {
		return
	}
	for i := range leaf {
		if atomic.LoadUint64(&leaf[i]) != 0 {
[!recheck]			return
		}
	}
	sum := &t.sums[tag][page>>6]
	arch.StoreRelease64(sum, atomic.LoadUint64(sum)&^(1<<(page&63)))
}`))
}

func ifErr(result string) *jen.Statement {
	return jen.If(jen.Id("err").Op("!=").Nil()).Block(jen.Return(jen.Id(result), jen.Id("err")))
}

const treeHeader = `
{T} is a radix tree of two levels, {pages} leaf pages of {pageKeys} keys, from keys of
{keyBits} bits to slot numbers of 32 bits, with {tagsText}. It lies in memory of the
caller; New{T} makes one, the zero value is none, and it is not copied.

Invariants.

	I1. A slot of 0 means that its key is absent.
	I2. A tag is set only on a key that is present.
	I3. A tag's summary bit of a leaf page is set exactly when the tag is set on
	    some key of that page.
	I4. A leaf page is stored into only after its memory was provided, and then
	    its present bit is set. Present bits are never cleared.

Writers and readers. One writer at a time, held together by the caller. Any
number of readers without a lock; they may be other processes with a read-only
mapping. While the writer is inside a call, I2 and I3 hold in one direction
only: a set bit may be stale, a clear bit hides no entry that was tagged before
the reader began and stays so. Readers check every index against the shape, so
memory that somebody else corrupted yields wrong answers and nothing worse, and
they touch only leaf pages that are present.

Ordering.

	A. The store of a present bit comes after the page was provided. Pairs with
	   B: a reader that saw it may touch the page.
	B. Readers load the present bit before anything of the page.
	C. The store of a slot (release) comes after all that the slot number
	   names. Pairs with D: a reader that got the number sees that.
	D. Readers load the slot after its tag bit (acquire).
	E. The store of a leaf's tag bit comes after C. Pairs with F: a reader that
	   saw the bit finds the slot, unless it was deleted since.
	F. Readers load a leaf's tag bits after its present bit, and walks after
	   its summary bit.
	G. The store of a summary bit comes after E. Pairs with the summary's load
	   at B, which comes before F. Clearing goes the same way up, leaf bit,
	   summary, and then the slot, so what is lost first is the entry's tag.

Stale reads. A lookup yields the slot at some moment of the call. A walk (All,
Gang, GangAll, NextTagged) reports each entry that is there, and tagged, throughout
the walk exactly once and in order of the keys; others may be reported or not,
and a key whose entry was replaced during the walk may come without the tag, so
what the slot names must say what it is.

Lifetime. A key can be deleted and inserted again, with the same slot or
another, between any two loads of a reader. Slots need a grace period or a
generation in what they name; the tree has neither.

Progress. Readers are wait-free; a walk makes at most {pages} pages times {pageWords} words
of tags, or {pageKeys} slots, of steps. The writer's calls are bounded, but for back.

Source: the tagged radix tree of Linux (lib/radix-tree.c), here with a fixed
height and bit maps apart from the slots.`
