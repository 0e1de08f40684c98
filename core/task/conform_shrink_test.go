package task_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// shrink makes a script that fails as short and as plain as it can: it leaves out
// steps, in ever smaller pieces, then flags and requested numbers, as long as the
// rest still fails. fails is asked at most tries times.
func shrink(sc *script, tries int, fails func(*script) bool) *script {
	try := func(candidate *script) bool {
		if tries == 0 || len(candidate.steps) == 0 {
			return false
		}
		tries--
		if fails(candidate) {
			sc = candidate
			return true
		}
		return false
	}
	for piece := (len(sc.steps) + 1) / 2; piece > 0; piece /= 2 {
		for at := len(sc.steps) - piece; at > -piece; {
			from := max(at, 0)
			to := min(at+piece, len(sc.steps))
			if from >= to || !try(sc.without(from, to)) {
				at -= piece
			} else {
				at = min(at, len(sc.steps)-piece)
			}
		}
	}
	for i := range sc.steps {
		for _, flag := range []uint64{unix.CLONE_VFORK, unix.CLONE_PARENT, unix.CLONE_NEWPID, unix.CLONE_THREAD} {
			if s := &sc.steps[i]; s.verb == doClone && s.has(flag) {
				plain := sc.copied()
				plain.steps[i].flags &^= flag
				try(plain)
			}
		}
		if sc.steps[i].setTID != nil {
			plain := sc.copied()
			plain.steps[i].setTID = nil
			try(plain)
		}
	}
	return sc
}

func (sc *script) copied() *script {
	c := *sc
	c.steps = slices.Clone(sc.steps)
	return &c
}

// without is the script less some steps, and less those that name a task that
// nothing makes any more. Lines are counted anew.
func (sc *script) without(from, to int) *script {
	c := *sc
	c.steps = nil
	tasks := map[string]bool{"init": true}
	for i, s := range sc.steps {
		if i >= from && i < to || s.checkNames(tasks) != nil {
			continue
		}
		s.line = len(c.steps) + 1
		c.steps = append(c.steps, s)
	}
	return &c
}

func TestConformShrink(t *testing.T) {
	sc := generate(7, 60)
	clones := func(sc *script) (n int) {
		for i := range sc.steps {
			if sc.steps[i].verb == doClone {
				n++
			}
		}
		return n
	}
	if clones(sc) < 10 {
		t.Fatalf("got %d clones, want a script with 10", clones(sc))
	}
	got := shrink(sc, 10_000, func(sc *script) bool { return clones(sc) >= 3 })
	if len(got.steps) != 3 || clones(got) != 3 {
		t.Errorf("got, want three clones:\n%s", got)
	}
	for i := range got.steps {
		if s := &got.steps[i]; s.flags != 0 || s.setTID != nil {
			t.Errorf("got %s, want a plain clone", s)
		}
	}
	if again, err := parse("shrunk", got.String()); err != nil || again.String() != got.String() {
		t.Errorf("the shrunk script reads back as %v, error %v", again, err)
	}
	asked := 0
	shrink(sc, 5, func(*script) bool { asked++; return false })
	if asked != 5 {
		t.Errorf("asked %d times, want 5", asked)
	}
}
