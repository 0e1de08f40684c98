package main

import (
	"strings"
	"testing"
)

// emitText returns the files of a specification given as text.
func emitText(text string) ([]file, error) {
	s, err := parseSpec("x.spec", text)
	if err != nil {
		return nil, err
	}
	return emit(s)
}

func TestRefused(t *testing.T) {
	const (
		tree   = "package p\ntree T key=22\n"
		heap   = "package p\ntree T key=22 own=gc writers=one empty=unlink\n"
		layout = "package p\nstruct S bytes=16\n"
		epoch  = "package p\nepoch Domain slots=4 spins=1 yields=1\n"
		cat    = "package p\ncatalogue C\n  field PID pid PID 7 right u32 - pid event # doc\n"
	)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "x.spec:1: no block"},
		{"no package", "tree T key=4\n", `x.spec:1: want "package NAME" first`},
		{"package of two words", "package a b\n", "x.spec:1: want"},
		{"package only", "package p\n", "x.spec:1: no block"},
		{"unknown kind", "package p\n\ntrie T key=4\n", `x.spec:3: unknown kind of block "trie"`},
		{"block without name", "package p\ntree\n", "x.spec:2: block"},
		{"block name", "package p\ntree a-b\n", "x.spec:2: \"a-b\" is no Go name"},
		{"option", "package p\ntree T key\n", `x.spec:2: option "key" is not key=value`},
		{"option twice", "package p\ntree T key=4 key=4\n", `x.spec:2: option "key" given twice`},
		{"unknown option", "package p\ntree T key=4 keys=4\n", `unknown option "keys"`},
		{"item outside", "package p\n  split 2 2\n", "x.spec:2: item"},

		{"no UTF-8", "package p\ntree T key=4 # \x84\n", "x.spec:2: byte 16 is no printable text"},
		{"carriage return", "package p\r\n", "x.spec:1: byte 10 is no printable text"},
		{"keyword", "package func\n", "x.spec:1: want"},

		{"two trees of one name", "package p\ntree T key=4\n  split 2 2\ntree T key=4\n  split 2 2\n", "x.spec:4: name T is taken by line 2"},
		{"unexported tree", "package p\ntree t key=4\n  split 2 2\n", `"t" is no exported Go name`},
		{"no key", "package p\ntree T\n  split 2 2\n", "option key=N is missing"},
		{"key too wide", "package p\ntree T key=64\n  split 32 32\n", `key is "64", want a number from 4 to 28`},
		{"no split", tree, "x.spec:2: tree T: item split is missing"},
		{"split twice", tree + "  split 11 11\n  split 11 11\n", "x.spec:4: tree T: split given twice"},
		{"split sum", tree + "  split 11 10\n", "x.spec:3: tree T: split 11 + 10 is not the key's 22 bits"},
		{"three levels", tree + "  split 8 7 7\n", "x.spec:3: tree T: split into 3 levels, want 2"},
		{"level too small", tree + "  split 1 21\n", `x.spec:3: split is "1"`},
		{"split of words", tree + "  split a b\n", `x.spec:3: split is "a"`},
		{"five tags", tree + "  split 11 11\n  tag A\n  tag B\n  tag C\n  tag D\n  tag E\n", "x.spec:8: tree T: more than 4 tags"},
		{"tag twice", tree + "  split 11 11\n  tag A\n  tag A\n", "x.spec:5: name TA is taken by line 4"},
		{"tag clash", tree + "  split 11 11\n  tag Keys\n", "x.spec:4: name TKeys is taken by line 2"},
		{"tag without name", tree + "  tag\n", "x.spec:3: tree T: want one name after tag"},
		{"tag of bad name", tree + "  tag a-b\n", `x.spec:3: "Ta-b" is no exported Go name`},
		{"unknown item", tree + "  height 3\n", `x.spec:3: tree T: unknown item "height"`},
		{"for nobody", "package p\ntree T key=4 for=fun\n  split 2 2\n", "for=fun"},

		{"unknown owner", "package p\ntree T key=8 own=me writers=one empty=keep\n  split 8\n", "x.spec:2: tree T: own=me, want gc or slab"},
		{"no writers", "package p\ntree T key=8 own=gc empty=keep\n  split 8\n", "tree T: writers=, want one or locked"},
		{"no empty", "package p\ntree T key=8 own=gc writers=one\n  split 8\n", "tree T: empty=, want keep or unlink"},
		{"heap option", "package p\ntree T key=8 own=gc writers=one empty=keep slots=8\n  split 8\n", `unknown option "slots"`},
		{"heap key too wide", "package p\ntree T key=65 own=gc writers=one empty=keep\n  split 65\n", `key is "65", want a number from 2 to 64`},
		{"heap without levels", heap, "x.spec:2: tree T: item split or nodes is missing"},
		{"heap split sum", heap + "  split 11 10\n", "x.spec:3: tree T: split 11 + 10 is not the key's 22 bits"},
		{"four levels", heap + "  split 6 6 5 5\n", "x.spec:3: tree T: split into 4 levels, want 1 to 3"},
		{"heap level too large", heap + "  split 4 18\n", `x.spec:3: split is "18"`},
		{"split and nodes", heap + "  split 11 11\n  nodes 6\n", "x.spec:4: tree T: second split"},
		{"nodes and split", heap + "  nodes 6\n  split 11 11\n", "x.spec:4: tree T: second split"},
		{"nodes too wide", heap + "  nodes 7\n", `x.spec:3: nodes is "7", want a number from 2 to 6`},
		{"larger under stress", heap + "  nodes 4 5\n", `x.spec:3: nodes is "5", want a number from 2 to 4`},
		{"nodes of nothing", heap + "  nodes\n", "x.spec:3: tree T: want bits of a node"},
		{"nodes that stay", "package p\ntree T key=64 own=gc writers=one empty=keep\n  nodes 6\n", "empty=keep with nodes"},
		{"nodes wider than keys", "package p\ntree T key=4 own=gc writers=one empty=unlink\n  nodes 6\n", "nodes of 6 bits for keys of 4"},
		{"free twice", heap + "  split 11 11\n  free\n  free\n", "x.spec:5: tree T: want free once and alone"},
		{"free of something", heap + "  split 11 11\n  free ids\n", "x.spec:4: tree T: want free once and alone"},
		{"heap five tags", heap + "  split 11 11\n  tag A\n  tag B\n  tag C\n  tag D\n  tag E\n", "x.spec:8: tree T: more than 4 tags"},
		{"heap tag clash", heap + "  split 11 11\n  tag KeyMax\n", "x.spec:4: name TKeyMax is taken by line 2"},
		{"heap item", heap + "  page 4\n", `x.spec:3: tree T: unknown item "page"`},
		{"heap named V", "package p\ntree V key=8 own=gc writers=one empty=keep\n  split 8\n", "x.spec:2: tree V: V is the type of the values"},
		{"heap busted outside tests", "package p\ntree T key=8 own=gc writers=one empty=keep busted=slot-first\n  split 8\n  tag A\n", "busted=slot-first without for=test"},
		{"heap unknown busted", "package p\ntree T key=8 own=gc writers=one empty=keep for=test busted=x\n  split 8\n", "busted=x, want one of recheck, root-first, slot-first"},
		{"mapped unknown busted", "package p\ntree T key=8 for=test busted=slot-first\n  split 4 4\n  tag A\n", "busted=slot-first, want one of recheck"},
		{"mapped busted without tag", "package p\ntree T key=8 for=test busted=recheck\n  split 4 4\n", "busted=recheck needs a tag"},
		{"growth of a fixed height", "package p\ntree T key=8 own=gc writers=one empty=keep for=test busted=root-first\n  split 8\n  tag A\n", "busted=root-first needs nodes and a tag"},
		{"summary of one level", "package p\ntree T key=8 own=gc writers=one empty=keep for=test busted=recheck\n  split 8\n  tag A\n", "busted=recheck needs a tag and two levels"},
		{"slot without a tag", "package p\ntree T key=8 own=gc writers=one empty=keep for=test busted=slot-first\n  split 8\n", "busted=slot-first needs a tag"},
		{"delay outside tests", "package p\ntree T key=8 own=gc writers=one empty=keep delay=yes\n  split 8\n  tag A\n", "delay=yes, want delay=yes with for=test"},
		{"half a delay", "package p\ntree T key=8 for=test delay=no\n  split 4 4\n", "delay=no, want delay=yes"},
		{"128 of a slab", "package p\ntree T key=128 own=slab writers=one\n", "own=slab with key=128, want own=gc"},
		{"128 without writers", "package p\ntree T key=128 own=gc\n", "tree T: writers=, want one or locked"},
		{"128 with tags", "package p\ntree T key=128 own=gc writers=one\n  tag A\n", "x.spec:3: tree T: keys of 128 bits are hashed"},
		{"128 for nobody", "package p\ntree T key=128 own=gc writers=one for=fun\n", "for=fun"},
		{"128 option", "package p\ntree T key=128 own=gc writers=one empty=keep\n", `unknown option "empty"`},
		{"128 twice", "package p\ntree T key=128 own=gc writers=one\ntree T key=128 own=gc writers=one\n", "x.spec:3: name T is taken by line 2"},

		{"48 bytes", "package p\nrecord R bytes=48 read=words spins=1 yields=1\n", "x.spec:2: record R of 48 bytes"},
		{"unknown read", "package p\nrecord R bytes=64 read=fast spins=1 yields=1\n", "read=fast"},
		{"no spins", "package p\nrecord R bytes=64 read=call yields=1\n", "option spins=N is missing"},
		{"unbounded yields", "package p\nrecord R bytes=64 read=call spins=1 yields=0\n", `yields is "0"`},
		{"record with items", "package p\nrecord R bytes=64 read=call spins=1 yields=1\n  u32 A\n", "x.spec:3: record R has no items"},

		{"count with items", "package p\nseqcount C spins=1 yields=1\n  u32 A\n", "x.spec:3: seqcount C has no items"},
		{"count without spins", "package p\nseqcount C yields=1\n", "option spins=N is missing"},
		{"count without bound", "package p\nseqcount C spins=1 yields=0\n", `yields is "0"`},
		{"count option", "package p\nseqcount C spins=1 yields=1 slots=1\n", `unknown option "slots"`},
		{"busted outside tests", "package p\nseqcount C spins=1 yields=1 busted=retry\n", "x.spec:2: seqcount C: busted and delay are for=test"},
		{"unknown busted", "package p\nseqcount C spins=1 yields=1 for=test busted=flip\n", "busted=flip, want one of retry"},
		{"count for nobody", "package p\nseqcount C spins=1 yields=1 for=fun\n", "for=fun"},

		{"domain name", "package p\nepoch RCU slots=4 spins=1 yields=1\n", "x.spec:2: epoch RCU: the name does not end in Domain"},
		{"domain items", epoch + "  u32 A\n", "x.spec:3: epoch Domain has no items"},
		{"domain slots", "package p\nsrcu Domain slots=0 spins=1 yields=1\n", `slots is "0"`},
		{"domain twice", epoch + "srcu Domain slots=4 spins=1 yields=1\n", "x.spec:3: name Domain is taken by line 2"},
		{"domain's reader", "package p\nrecord Reader bytes=64 read=call spins=1 yields=1\nepoch Domain slots=4 spins=1 yields=1\n", "x.spec:3: name Reader is taken by line 2"},
		{"domain's error", epoch + "record ErrBacklog bytes=64 read=call spins=1 yields=1\n", "x.spec:3: name ErrBacklog is taken by line 2"},
		{"unknown delay", "package p\nsrcu Domain slots=4 spins=1 yields=1 for=test delay=no\n", "delay=no, want delay=yes"},
		{"srcu option", "package p\nsrcu Domain slots=4 spins=1 yields=1 batch=4\n", `unknown option "batch"`},

		{"no domain", "package p\nretire W handle=uint32 batch=4 items=16 bytes=1\n", "x.spec:2: retire W: domain= is no epoch domain above"},
		{"domain below", "package p\nretire W domain=Domain handle=uint32 batch=4 items=16 bytes=1\nepoch Domain slots=4 spins=1 yields=1\n", "x.spec:2: retire W: domain=Domain is no epoch domain above"},
		{"domain of srcu", "package p\nsrcu Domain slots=4 spins=1 yields=1\nretire W domain=Domain handle=uint32 batch=4 items=16 bytes=1\n", "is no epoch domain above"},
		{"domain of tests", "package p\nepoch Domain slots=4 spins=1 yields=1 for=test\nretire W domain=Domain handle=uint32 batch=4 items=16 bytes=1\n", "x.spec:3: retire W: domain=Domain is for=test"},
		{"handle", epoch + "retire W domain=Domain handle=uint16 batch=4 items=16 bytes=1\n", "x.spec:3: retire W: handle=uint16, want uint32 or uint64"},
		{"batch", epoch + "retire W domain=Domain handle=uint32 batch=6 items=32 bytes=1\n", "batch=6 is no power of two"},
		{"ring", epoch + "retire W domain=Domain handle=uint32 batch=4 items=20 bytes=1\n", "items=20 is no power of two"},
		{"ring too small", epoch + "retire W domain=Domain handle=uint32 batch=8 items=16 bytes=1\n", `items is "16", want a number from 32`},
		{"no bytes", epoch + "retire W domain=Domain handle=uint32 batch=4 items=16\n", "option bytes=N is missing"},
		{"retire option", epoch + "retire W domain=Domain handle=uint32 batch=4 items=16 bytes=1 delay=yes\n", `unknown option "delay"`},
		{"retire items", epoch + "retire W domain=Domain handle=uint32 batch=4 items=16 bytes=1\n  u32 A\n", "x.spec:4: retire W has no items"},

		{"queue ring", "package p\nqueue Q batch=4 items=24\n", "x.spec:2: queue Q: items=24 is no power of two"},
		{"queue batch", "package p\nqueue Q batch=2 items=16\n", `batch is "2"`},
		{"queue type parameter", "package p\nqueue T batch=4 items=16\n", "x.spec:2: queue T: T is the type of its items"},
		{"queue writer", "package p\nqueue Q batch=4 items=16\nqueue QWriter batch=4 items=16\n", "x.spec:3: name QWriter is taken by line 2"},
		{"queue items", "package p\nqueue Q batch=4 items=16\n  u32 A\n", "x.spec:3: queue Q has no items"},
		{"queue option", "package p\nqueue Q batch=4 items=16 bytes=4\n", `unknown option "bytes"`},

		{"unknown width", layout + "  u24 A\n", `x.spec:3: unknown width "u24"`},
		{"unknown array", layout + "  u32[4 A\n", `x.spec:3: unknown width "u32[4"`},
		{"empty array", layout + "  bytes[0] A\n", `x.spec:3: length of bytes is "0"`},
		{"misaligned", layout + "  u32 A\n  u64 B\n", "x.spec:4: S.B at offset 4 is not aligned to 8"},
		{"overflow", layout + "  u64 A\n  u64 B\n  u8 C\n", "x.spec:5: S is full"},
		{"short", layout + "  u64 A\n", "x.spec:2: struct S has 8 bytes of fields, want 16"},
		{"tail", "package p\nstruct S bytes=12\n  u64 A\n  u32 B\n", "not a multiple of its alignment 8"},
		{"field twice", layout + "  u64 A\n  u64 A\n", "x.spec:4: S.A given twice"},
		{"unexported field", layout + "  u64 a\n", `x.spec:3: "a" is no exported Go name`},
		{"field without name", layout + "  u64\n", "x.spec:3: want a width and a name"},
		{"no pad", layout + "  pad 0\n", `x.spec:3: pad is "0"`},
		{"const clash", "package p\nconst Hot\n  Bytes u32 1\nstruct Hot bytes=4\n  u32 A\n", "x.spec:4: name HotBytes is taken by line 3"},
		{"const too large", "package p\nconst C\n  A u8 256\n", `x.spec:3: A: "256" is no value of 8 bits`},
		{"const width", "package p\nconst C\n  A u7 1\n", `x.spec:3: A: unknown width "u7"`},
		{"bit twice", "package p\nflags F type=u32\n  A 1\n  B 1\n", "x.spec:4: B: 1 is taken by A"},
		{"bit beyond", "package p\nflags F type=u8\n  A 8\n", `x.spec:3: A is "8", want a number from 0 to 7`},
		{"flags without type", "package p\nflags F\n  A 1\n", `unknown width ""`},
		{"enum words", "package p\nenum E type=u32\n  A\n", "x.spec:3: enum E: want 2 words"},

		{"columns", "package p\ncatalogue C\n  field PID pid\n", "x.spec:3: field has 2 columns"},
		{"no doc", "package p\ncatalogue C\n  field PID pid PID 7 right u32 - pid event\n", "x.spec:3: field pid has no doc"},
		{"same name", cat + "  field X pid X 7 right u32 - x event # doc\n", "x.spec:4: name pid given twice"},
		{"same alias", cat + "  alias pid P\n", "x.spec:4: name pid given twice"},
		{"same ID", cat + "  field PID x X 7 right u32 - x event # doc\n", "x.spec:4: name PID is taken by line 3"},
		{"same key", cat + "  field X x X 7 right u32 - pid event # doc\n", "x.spec:4: field x: JSON key pid is taken by pid"},
		{"shared key of another type", cat + "  field X x X 7 right u64 - =pid event # doc\n", "is of another type"},
		{"shared key of nobody", cat + "  field X x X 7 right u64 - =y event # doc\n", "no field above has JSON key y"},
		{"field type", cat + "  field X x X 7 right u16 - x event # doc\n", `unknown type "u16"`},
		{"field unit", cat + "  field X x X 7 right u32 miles x event # doc\n", `unknown unit "miles"`},
		{"field align", cat + "  field X x X 7 middle u32 - x event # doc\n", `align "middle"`},
		{"alias first", "package p\ncatalogue C\n  alias a A\n", "x.spec:3: want alias"},
	} {
		_, err := emitText(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "x.spec:") {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func TestParseSpec(t *testing.T) {
	s, err := parseSpec("x.spec", `# licence, not a doc

package p
# first line
# second line
tree T key=4 for=test # not kept

  split 2 2   # trailing
	tag X
`)
	if err != nil {
		t.Fatal(err)
	}
	b := s.blocks[0]
	if s.pkg != "p" || b.kind != "tree" || b.name != "T" || b.opts["key"] != "4" || b.pos.line != 6 {
		t.Errorf("got package %q and block %+v", s.pkg, b)
	}
	if got := strings.Join(b.doc, "|"); got != "first line|second line" {
		t.Errorf("doc: got %q", got)
	}
	if len(b.items) != 2 || b.items[0].doc != "trailing" || b.items[1].words[1] != "X" {
		t.Errorf("items: got %+v", b.items)
	}
}

func FuzzSpec(f *testing.F) {
	f.Add("package p\ntree T key=4\n  split 2 2\n  tag A # doc\n")
	f.Add("package p\ntree T key=48 own=slab writers=locked empty=unlink\n  nodes 6 2\n  free\n  tag A\n")
	f.Add("package p\ntree T key=9 own=gc writers=one empty=keep for=test busted=slot-first\n  split 2 7\n  tag A\n")
	f.Add("package p\ntree T key=128 own=gc writers=one\n")
	f.Add("package p\nrecord R bytes=64 read=words spins=1 yields=1\n")
	f.Add("package p\nseqcount C spins=1 yields=1\nqueue Q batch=4 items=16\nqueue B batch=4 items=16 for=test delay=yes busted=publish\n")
	f.Add("package p\n# doc\nepoch Domain slots=4 spins=1 yields=1\nretire W domain=Domain handle=uint64 batch=4 items=16 bytes=1\n")
	f.Add("package p\nsrcu ADomain slots=4 spins=1 yields=1 for=test delay=yes busted=flip\n")
	f.Add("package p\nconst C\n  A u32 1\nflags F type=u8\n  B 1\nenum E type=u8\n  D 0\nstruct S bytes=8\n  u32[1] A # \"\n  pad *\n")
	f.Add("package p\ncatalogue C\n  field PID pid PID 7 right u32 - pid event # doc `\n  alias a \"\n")
	f.Fuzz(func(t *testing.T, text string) {
		files, err := emitText(text)
		if err == nil && len(files) == 0 {
			t.Error("no error and no file")
		}
		if err != nil && !strings.HasPrefix(err.Error(), "x.spec:") {
			t.Errorf("error without its place: %v", err)
		}
		if err != nil && strings.Contains(err.Error(), "render") {
			t.Errorf("emitted what is no Go: %v", err)
		}
	})
}
