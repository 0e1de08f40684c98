package main

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"
)

// record is a block of kind "record": a fixed array of words under a sequence
// lock, whose first word is the sequence.
//
//	record Rec64 bytes=64 read=words spins=64 yields=256
//
// read=words emits one atomic load per word, read=call one call into arch.
type record struct {
	name          string
	words         int
	inWords       bool
	spins, yields int
}

func parseRecord(b *block) (record, error) {
	r := record{name: b.name}
	if err := b.allow("bytes", "read", "spins", "yields"); err != nil {
		return r, err
	}
	if err := b.claim(b.pos, b.name); err != nil {
		return r, err
	}
	if len(b.items) > 0 {
		return r, b.items[0].pos.errorf("record %s has no items, got %q", b.name, b.items[0].words[0])
	}
	bytes, err := b.number("bytes", 1, 1<<20)
	if err != nil {
		return r, err
	}
	if bytes != 32 && bytes != 64 && bytes != 128 && bytes != 256 {
		return r, b.pos.errorf("record %s of %d bytes: arch has copies of 32, 64, 128 and 256", b.name, bytes)
	}
	r.words = bytes / 8
	switch read := b.opts["read"]; read {
	case "words":
		r.inWords = true
	case "call":
	default:
		return r, b.pos.errorf("record %s: read=%s, want words or call", b.name, read)
	}
	if r.spins, err = b.number("spins", 1, 1<<16); err != nil {
		return r, err
	}
	r.yields, err = b.number("yields", 1, 1<<16)
	return r, err
}

func emitRecord(f *jen.File, b *block) error {
	r, err := parseRecord(b)
	if err != nil {
		return err
	}
	w := newWriter(map[string]any{
		"T":       r.name,
		"t":       strings.ToLower(r.name[:1]) + r.name[1:],
		"bytes":   r.words * 8,
		"words":   r.words,
		"payload": r.words - 1,
		"spins":   r.spins,
		"yields":  r.yields,
	})
	f.Add(jen.Line().Const().Defs(
		w.src("{t}Spins = {spins}").Comment("tries with a pause before each"),
		w.src("{t}Yields = {yields}").Comment("tries with a yield to other goroutines before each"),
	))
	f.Add(jen.Line().Add(w.note(recordHeader)).Line().Type().Id(r.name).Struct(
		w.src("w [{words}]uint64").Comment("word 0: sequence; the rest: payload; atomic"),
	))
	f.Add(w.fn(`
TryRead copies the payload to dst and reports whether it is one whole write.
One try: false when a writer is at work or came between, and then dst holds
garbage.`, "(r *{T}) TryRead(dst *[{payload}]uint64) bool", r.tryRead(w)...))
	f.Add(w.fn(`
Read copies the payload to dst and reports whether it is one whole write. It
tries {spins} times with a pause and {yields} times with a yield between; false means
that a writer stopped inside a write or never stops writing, and then dst holds
garbage.`, "(r *{T}) Read(dst *[{payload}]uint64) bool",
		r.read(w)...))
	f.Add(jen.Line().Comment("//go:noinline").Line().Func().Add(
		w.src("(r *{T}) readSlow(dst *[{payload}]uint64) bool")).Block(
		jen.For(w.src("range {t}Spins")).Block(
			w.src("arch.Pause()"),
			jen.If(w.src("r.TryRead(dst)")).Block(w.src("return true")),
		),
		jen.For(w.src("range {t}Yields")).Block(
			w.src("runtime.Gosched()"),
			jen.If(w.src("r.TryRead(dst)")).Block(w.src("return true")),
		),
		w.src("return false"),
	))
	f.Add(w.fn(`
Write replaces the payload by src in one whole write. The caller holds what
makes it the only writer of this record.`, "(r *{T}) Write(src *[{payload}]uint64)",
		w.src("arch.SeqWrite{bytes}(&r.w, src)").Comment("A, C")))
	f.Add(w.fn(`
Seq returns the sequence: odd while a write is in progress, else twice the
number of whole writes.`, "(r *{T}) Seq() uint64", w.src("return atomic.LoadUint64(&r.w[0])")))
	return nil
}

func (r record) tryRead(w writer) []jen.Code {
	if !r.inWords {
		return []jen.Code{w.src("return arch.SeqRead{bytes}(dst, &r.w)").Comment("D, B")}
	}
	return append(r.copyWords(w), w.src("return seq&1 == 0 && atomic.LoadUint64(&r.w[0]) == seq").Comment("B"))
}

// read makes its first try in place where the compiler would not inline it.
func (r record) read(w writer) []jen.Code {
	if !r.inWords {
		return []jen.Code{w.src("return r.TryRead(dst) || r.readSlow(dst)")}
	}
	return append(r.copyWords(w),
		jen.If(w.src("seq&1 == 0 && atomic.LoadUint64(&r.w[0]) == seq")).Block(w.src("return true").Comment("B")),
		w.src("return r.readSlow(dst)"))
}

func (r record) copyWords(w writer) []jen.Code {
	code := []jen.Code{w.src("seq := atomic.LoadUint64(&r.w[0])").Comment("D")}
	for i := 1; i < r.words; i++ {
		code = append(code, w.src(fmt.Sprintf("dst[%d] = atomic.LoadUint64(&r.w[%d])", i-1, i)))
	}
	return code
}

const recordHeader = `
{T} is a record of {bytes} bytes under a sequence lock: {payload} words of payload behind
the sequence. The zero value is a record with a payload of zeros. It is used
where it lies, often in a mapping shared with other processes, and not copied.

Invariants.

	I1. Word 0 is odd while a write is in progress, else even.
	I2. Word 0 grows by 2 with each whole write and never comes back.
	I3. A reader that saw the same even word 0 before and after its copy has
	    copied one whole write.

Writers and readers. One writer at a time, held together by the caller; any
number of readers, which store nothing: they may be other processes that map
the record read-only. Every word is atomic.

Ordering.

	A. Write stores the odd sequence before the payload. Pairs with B: a
	   reader that copied a word of the new payload finds the sequence moved.
	B. TryRead loads the sequence again after the payload.
	C. Write stores the even sequence after the payload (release). Pairs with
	   D: a reader that saw it copies that payload or a newer one.
	D. TryRead loads the sequence before the payload (acquire).

A racing reader sees an older whole write, the newest one, or false. It never
gets true with words of two writes.

Lifetime. What was copied is the reader's own. The record may be reused for
another owner at any time, so the payload carries its identity and the reader
checks it in its copy.

Progress. Write is wait-free: one call into assembly, inside which the Go
runtime cannot stop the goroutine. TryRead is wait-free. Read is bounded by
1 + {spins} + {yields} tries.

Source: the seqlock_t of Linux; Boehm, "Can seqlocks get along with programming
language memory models?" (2012).`
