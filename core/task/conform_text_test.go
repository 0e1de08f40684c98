package task_test

import (
	"strings"
	"testing"
)

// Every step reads back as it was written, hand-written or random.
func TestConformText(t *testing.T) {
	scripts := handWritten(t)
	for seed := range uint64(50) {
		scripts = append(scripts, generate(seed, 50))
	}
	for _, sc := range scripts {
		text := sc.String()
		again, err := parse(sc.name, text)
		if err != nil {
			t.Error(err)
		} else if again.String() != text {
			t.Errorf("%s: got\n%s, want\n%s", sc.name, again, text)
		}
	}
	if a, b := generate(3, 50).String(), generate(3, 50).String(); a != b {
		t.Errorf("one seed gives two scripts:\n%s\n%s", a, b)
	}
}

func TestConformParse(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"init clone a", ""},
		{"# nothing\n\ninit clone a set_tid=3,-1 => EEXIST # text", ""},
		{"init clone a\na wait pgid 0 WNOHANG", ""},
		{"a exit 1", `x:1: no task "a"`},
		{"init clone a\ninit clone a", `x:2: clone: the name "a" is taken`},
		{"init clone 0", `x:1: clone: the name "0" is taken`},
		{"init", `x:1: "init": want a task and what it does`},
		{"init fork a", `x:1: no step "fork"`},
		{"init clone", "x:1: clone: got 0 arguments, want 1"},
		{"init clone a CLONE_VM", `x:1: clone: no flag "CLONE_VM"`},
		{"init clone a set_tid=x", `x:1: strconv.Atoi: parsing "x": invalid syntax`},
		{"init clone a CLONE_THREAD set_tid=4", "x:1: clone: the script language requests no numbers for threads"},
		{"init exit", "x:1: exit: got 0 arguments, want 1"},
		{"init exit 3 4", `x:1: exit: "4" is too much`},
		{"init exit x", `x:1: strconv.Atoi: parsing "x": invalid syntax`},
		{"init kill init SIGHUP", `x:1: no signal "SIGHUP"`},
		{"init sigchld SIG_ERR", `x:1: no disposition "SIG_ERR"`},
		{"init wait pid", "x:1: wait pid: for whom?"},
		{"init wait pid b", `x:1: wait: no task "b"`},
		{"init wait any WNOTHREAD", `x:1: wait: no flag "WNOTHREAD"`},
		{"init setpgid 0 z", `x:1: setpgid: no task "z"`},
	} {
		_, err := parse("x", c.text)
		if got := errorText(err); got != c.err {
			t.Errorf("%q: got error %q, want %q", strings.TrimSpace(c.text), got, c.err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
