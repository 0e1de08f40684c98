package main

import (
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"
)

// A block of kind "catalogue" is a table of fields in the order in which they
// are listed, one a line, and their further names below them:
//
//	catalogue Catalogue
//	  #     ID  NAME HEADER WIDTH ALIGN TYPE UNIT JSON SOURCE
//	  field TID tid  TID    7     right u32  -    tid  event   # what it is
//	  alias lwp LWP
//
// "-" is no unit. A JSON key belongs to one field, unless it is written =KEY:
// another presentation of the value of a field above.
type catalogueField struct {
	id, name, header string
	width            int
	right            bool
	typ, unit        string
	json, source     string
	doc              string
	aliases          [][2]string // name, header
}

// fieldTypes are the types of values, and the names of them in package field.
var fieldTypes = map[string]string{
	"u32": "Uint32", "u64": "Uint64", "i64": "Int64",
	"string": "String", "char": "Char", "bool": "Bool",
}

var fieldUnits = map[string]string{
	"-": "", "ns": "ns", "ticks": "ticks", "tasks": "tasks", "bytes": "bytes",
}

func parseCatalogue(b *block) ([]catalogueField, error) {
	if err := b.allow(); err != nil {
		return nil, err
	}
	if err := b.claim(b.pos, b.name, "ID", "Lookup"); err != nil {
		return nil, err
	}
	var fields []catalogueField
	names := map[string]bool{}
	for _, it := range b.items {
		var name string
		switch it.words[0] {
		case "field":
			f, err := parseField(b, it, fields)
			if err != nil {
				return nil, err
			}
			fields = append(fields, f)
			name = f.name
		case "alias":
			if len(it.words) != 3 || len(fields) == 0 {
				return nil, it.pos.errorf("want alias NAME HEADER below a field, got %q", strings.Join(it.words, " "))
			}
			last := &fields[len(fields)-1]
			name = it.words[1]
			last.aliases = append(last.aliases, [2]string{name, it.words[2]})
		default:
			return nil, it.pos.errorf("unknown item %q", it.words[0])
		}
		if names[name] {
			return nil, it.pos.errorf("name %s given twice", name)
		}
		names[name] = true
	}
	return fields, nil
}

func parseField(b *block, it item, above []catalogueField) (catalogueField, error) {
	var f catalogueField
	if len(it.words) != 10 {
		return f, it.pos.errorf("field has %d columns, want ID NAME HEADER WIDTH ALIGN TYPE UNIT JSON SOURCE", len(it.words)-1)
	}
	w := it.words[1:]
	f = catalogueField{id: w[0], name: w[1], header: w[2], json: w[7], source: w[8], doc: it.doc}
	if err := b.claim(it.pos, f.id); err != nil {
		return f, err
	}
	if f.doc == "" {
		return f, it.pos.errorf("field %s has no doc", f.name)
	}
	var err error
	if f.width, err = number(it.pos, "width", w[3], 1, 99); err != nil {
		return f, err
	}
	switch w[4] {
	case "left", "right":
		f.right = w[4] == "right"
	default:
		return f, it.pos.errorf("field %s: align %q, want left or right", f.name, w[4])
	}
	var ok bool
	if f.typ, ok = fieldTypes[w[5]]; !ok {
		return f, it.pos.errorf("field %s: unknown type %q", f.name, w[5])
	}
	if f.unit, ok = fieldUnits[w[6]]; !ok {
		return f, it.pos.errorf("field %s: unknown unit %q", f.name, w[6])
	}
	return f, f.checkKey(it.pos, above)
}

// checkKey settles the JSON key among those of the fields above.
func (f *catalogueField) checkKey(at pos, above []catalogueField) error {
	key, shared := strings.CutPrefix(f.json, "=")
	f.json = key
	for _, other := range above {
		if other.json != key {
			continue
		}
		switch {
		case !shared:
			return at.errorf("field %s: JSON key %s is taken by %s", f.name, key, other.name)
		case other.typ != f.typ:
			return at.errorf("field %s: JSON key %s is of another type", f.name, key)
		}
		return nil
	}
	if shared {
		return at.errorf("field %s: no field above has JSON key %s", f.name, key)
	}
	return nil
}

func emitCatalogue(f *jen.File, b *block) error {
	fields, err := parseCatalogue(b)
	if err != nil {
		return err
	}
	ids := make([]jen.Code, 0, len(fields))
	var entries, cases []jen.Code
	for i, c := range fields {
		id := jen.Id(c.id)
		if i == 0 {
			id.Id("ID").Op("=").Iota()
		}
		ids = append(ids, id.Add(comment([]string{c.doc})))
		entries = append(entries, jen.Id(c.id).Op(":").Values(c.values()...))
		cases = append(cases, c.lookupCases()...)
	}
	cases = append(cases, jen.Default().Block(jen.Return(jen.Lit(0), jen.Lit(""), jen.False())))

	f.Add(jen.Line().Comment("// ID is the place of a field in the catalogue.").Line().Type().Id("ID").Int())
	f.Add(jen.Line().Comment("// The fields, in the order of the catalogue.").Line().Const().Defs(ids...))
	f.Add(jen.Line().Add(comment(b.doc)).Line().Var().Id(b.name).Op("=").Op("[...]").Id("Field").Custom(
		jen.Options{Open: "{", Close: "}", Separator: ",", Multi: true}, entries...))
	f.Add(jen.Line().Comment(`// Lookup returns the field with the name or further name, and the header that goes
// with that name.`).Line().Func().Id("Lookup").Params(jen.Id("name").String()).Params(
		jen.Id("id").Id("ID"), jen.Id("header").String(), jen.Id("ok").Bool()).Block(
		jen.Switch(jen.Id("name")).Block(cases...)))
	return nil
}

// values returns the parts of the composite literal that are not zero.
func (c *catalogueField) values() []jen.Code {
	var v []jen.Code
	add := func(key string, value jen.Code) { v = append(v, jen.Line().Id(key).Op(":").Add(value)) }
	add("Name", jen.Lit(c.name))
	if len(c.aliases) > 0 {
		var list []jen.Code
		for _, a := range c.aliases {
			list = append(list, jen.Values(jen.Lit(a[0]), jen.Lit(a[1])))
		}
		add("Aliases", jen.Index().Id("Alias").Values(list...))
	}
	add("Header", jen.Lit(c.header))
	add("Width", jen.Id(strconv.Itoa(c.width)))
	if c.right {
		add("Right", jen.True())
	}
	add("JSON", jen.Lit(c.json))
	add("Type", jen.Id(c.typ))
	if c.unit != "" {
		add("Unit", jen.Lit(c.unit))
	}
	add("Visible", jen.Id("All"))
	add("Source", jen.Lit(c.source))
	add("Doc", jen.Lit(c.doc))
	return append(v, jen.Line())
}

// lookupCases returns a case of Lookup for each header of the field, with the
// names that have it.
func (c *catalogueField) lookupCases() []jen.Code {
	var headers []string
	names := map[string][]jen.Code{}
	for _, n := range append([][2]string{{c.name, c.header}}, c.aliases...) {
		if names[n[1]] == nil {
			headers = append(headers, n[1])
		}
		names[n[1]] = append(names[n[1]], jen.Lit(n[0]))
	}
	cases := make([]jen.Code, 0, len(headers))
	for _, header := range headers {
		cases = append(cases, jen.Case(names[header]...).Block(
			jen.Return(jen.Id(c.id), jen.Lit(header), jen.True())))
	}
	return cases
}
