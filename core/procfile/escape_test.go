package procfile

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestAppendEscaped(t *testing.T) {
	tests := []struct{ in, text, json string }{
		{"", ``, `""`},
		{"plain name", `plain name`, `"plain name"`},
		{"größe 日本", `größe 日本`, `"größe 日本"`},
		{"a) R 1 \n\xff(b", `a) R 1 \n\xff(b`, `"a) R 1 \u000a\\xff(b"`},
		{"\t\r\x00\x7f", `\t\x0d\x00\x7f`, `"\u0009\u000d\u0000\u007f"`},
		{"\x1b[31mred", `\x1b[31mred`, `"\u001b[31mred"`},
		{`C:\x`, `C:\\x`, `"C:\\\\x"`},
		{`\xff`, `\\xff`, `"\\\\xff"`},
		{`say "hi"`, `say "hi"`, `"say \"hi\""`},
		{"\u202egnp.exe", `\xe2\x80\xaegnp.exe`, "\"\u202egnp.exe\""},
		{"\u00a0\u200b", `\xc2\xa0\xe2\x80\x8b`, "\"\u00a0\u200b\""},
		{"\ufffd", "\ufffd", "\"\ufffd\""},
		{"cut\xe2\x82", `cut\xe2\x82`, `"cut\\xe2\\x82"`},
		{"\xed\xa0\x80", `\xed\xa0\x80`, `"\\xed\\xa0\\x80"`},
	}
	for _, tt := range tests {
		if got := string(AppendEscaped(nil, []byte(tt.in))); got != tt.text {
			t.Errorf("AppendEscaped(%q) = %s, want %s", tt.in, got, tt.text)
		}
		if got := string(AppendJSONString(nil, []byte(tt.in))); got != tt.json {
			t.Errorf("AppendJSONString(%q) = %s, want %s", tt.in, got, tt.json)
		}
	}
}

// unescape turns either form back.
func unescape(t *testing.T, text string) []byte {
	t.Helper()
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		i++
		switch text[i] {
		case '\\':
			out = append(out, '\\')
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'x':
			high := bytes.IndexByte([]byte(hexDigits), text[i+1])
			low := bytes.IndexByte([]byte(hexDigits), text[i+2])
			out = append(out, byte(high<<4|low))
			i += 2
		default:
			t.Fatalf("escaped text %q has an unknown escape at %d", text, i)
		}
	}
	return out
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", `a\x`, "a\xffb\n", "\u202e", "\"\x00\x1f\x7f", "\xe2\x82\xac\xe2\x82"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		text := AppendEscaped([]byte("kept"), in)
		if !bytes.HasPrefix(text, []byte("kept")) {
			t.Fatalf("AppendEscaped lost what was in dst: %q", text)
		}
		text = text[4:]
		if got := unescape(t, string(text)); !bytes.Equal(got, in) {
			t.Errorf("AppendEscaped(%q) = %q, which turns back to %q", in, text, got)
		}
		if !utf8.Valid(text) || bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("AppendEscaped(%q) = %q has controls or no UTF-8", in, text)
		}
		var s string
		j := AppendJSONString(nil, in)
		if err := json.Unmarshal(j, &s); err != nil {
			t.Fatalf("AppendJSONString(%q) = %s: %v", in, j, err)
		}
		if got := unescape(t, s); !bytes.Equal(got, in) {
			t.Errorf("AppendJSONString(%q) = %s, which turns back to %q", in, j, got)
		}
	})
}

func TestEscapeAllocs(t *testing.T) {
	name := []byte("a) R \\1 \n\xff(b")
	buf := make([]byte, 0, 256)
	if got := testing.AllocsPerRun(100, func() {
		buf = AppendEscaped(buf[:0], name)
		buf = AppendJSONString(buf, name)
	}); got != 0 {
		t.Errorf("escaping allocates %v times, want 0", got)
	}
}
