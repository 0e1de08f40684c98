package main

import "testing"

// A busted tree is the real one with one line left out or moved.
func TestBustedTreeIsOneLine(t *testing.T) {
	for _, c := range []struct{ head, items, busted string }{
		{"tree T key=9 own=gc writers=one empty=keep for=test", "  split 4 5\n  tag A\n", "recheck"},
		{"tree T key=64 own=gc writers=one empty=unlink for=test", "  nodes 2\n  tag A\n", "recheck"},
		{"tree T key=11 own=mapped for=test", "  split 4 7\n  tag A\n", "recheck"},
		{"tree T key=64 own=gc writers=one empty=unlink for=test delay=yes", "  nodes 2\n  tag A\n", "root-first"},
		{"tree T key=9 own=gc writers=one empty=keep for=test delay=yes", "  split 4 5\n  tag A\n", "slot-first"},
	} {
		real := emitLines(t, "package p\n"+c.head+"\n"+c.items)
		busted := emitLines(t, "package p\n"+c.head+" busted="+c.busted+"\n"+c.items)
		missing, added := without(real, busted), without(busted, real)
		if line, moved := movedLine(real, busted); moved {
			t.Logf("busted=%s: moved %q", c.busted, line)
		} else if len(missing) != 1 || len(added) != 0 {
			t.Errorf("busted=%s: left out %q, put in %q, want one line left out", c.busted, missing, added)
		}
	}
}
