package procfile

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendEscaped appends a name for a terminal or a line of text. Printable
// UTF-8 passes. A backslash is doubled, a newline becomes \n, a tab \t, and
// each byte of anything else (controls, invisible and bidirectional marks, no
// UTF-8) \xHH: nothing is dropped, no two names look the same, and the form
// can be turned back.
func AppendEscaped(dst, name []byte) []byte {
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		switch {
		case r == '\\':
			dst = append(dst, `\\`...)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r == utf8.RuneError && n == 1, !strconv.IsPrint(r):
			for _, c := range name[:n] {
				dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			}
		default:
			dst = append(dst, name[:n]...)
		}
		name = name[n:]
	}
	return dst
}

// AppendJSONString appends a name as a JSON string, quotes included. The text
// of the string is the name where it is UTF-8, but with each backslash
// doubled and each byte that is no UTF-8 as \xHH, so that a reader of the
// JSON can turn it back: the name a\<ff> has the text a\\\xff, and is written
// "a\\\\\\xff".
func AppendJSONString(dst, name []byte) []byte {
	dst = append(dst, '"')
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		switch {
		case r == '\\':
			dst = append(dst, `\\\\`...)
		case r == '"':
			dst = append(dst, `\"`...)
		case r < ' ' || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		case r == utf8.RuneError && n == 1:
			dst = append(dst, '\\', '\\', 'x', hexDigits[name[0]>>4], hexDigits[name[0]&15])
		default:
			dst = append(dst, name[:n]...)
		}
		name = name[n:]
	}
	return append(dst, '"')
}
