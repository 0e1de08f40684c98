package radix

import (
	"os/exec"
	"regexp"
	"testing"
)

// Steady state allocates nothing: neither readers, nor writers on nodes that stay.
func TestAllocs(t *testing.T) {
	value := new(uint64)
	mapped, err := NewTree22(shapes[0].memory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mappedBuf := make([]Tree22Entry, 16)

	flat := NewTree22GC[uint64]()
	flatBuf := make([]Tree22GCEntry[uint64], 16)
	flat.InsertNew(60, value)

	deep := NewTree64[uint64]()
	deepBuf := make([]Tree64Entry[uint64], 16)
	deep.InsertNew(1<<40, value)

	wide := NewTree32Slab()
	wideBuf := make([]Tree32SlabEntry, 16)
	wide.InsertNew(1<<31, 1)

	hashed := NewTree128[uint64]()
	hashed.Insert(Tree128Key{1, 2}, value)

	for name, run := range map[string]func(){
		"Tree22": func() {
			mapped.Insert(70, 1)
			mapped.SetTag(70, Tree22TGID)
			mapped.Lookup(70)
			mapped.NextTagged(0, Tree22TGID)
			mapped.Gang(0, Tree22TGID, mappedBuf)
			mapped.GangAll(0, mappedBuf)
			mapped.ClearTag(70, Tree22TGID)
			mapped.Delete(70)
			mapped.InsertNew(71, 2)
			mapped.Delete(71)
		},
		"Tree22GC": func() {
			flat.Insert(70, value)
			flat.SetTag(70, Tree22GCTGID)
			flat.Lookup(70)
			flat.NextTagged(0, Tree22GCTGID)
			flat.Gang(0, Tree22GCTGID, flatBuf)
			flat.GangAll(0, flatBuf)
			flat.Delete(70)
			id, _ := flat.AllocCyclic(0, 100, value)
			flat.Withdraw(id)
			flat.Cancel(id)
		},
		"Tree64": func() {
			deep.Insert(1<<40+1, value)
			deep.SetTag(1<<40+1, Tree64TGID)
			deep.Lookup(1<<40 + 1)
			deep.NextTagged(0, Tree64TGID)
			deep.Gang(0, Tree64TGID, deepBuf)
			deep.GangAll(0, deepBuf)
			deep.Delete(1<<40 + 1)
			id, _ := deep.ReserveCyclic(1<<40, 1<<40+2)
			deep.Publish(id, value)
			deep.Free(id)
		},
		"Tree32Slab": func() {
			wide.InsertNew(1<<31+5, 7)
			wide.SetTag(1<<31+5, Tree32SlabDirty)
			wide.Lookup(1<<31 + 5)
			wide.Gang(0, Tree32SlabDirty, wideBuf)
			wide.Delete(1<<31 + 5)
		},
		"Tree128.Lookup": func() { hashed.Lookup(Tree128Key{1, 2}) },
	} {
		if got := testing.AllocsPerRun(100, run); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, got)
		}
	}
}

// Lookup of every width up to 64 stays within the inliner's budget, also where it
// is instantiated.
func TestLookupInlines(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to ask the compiler")
	}
	out, err := exec.Command(goTool, "test", "-c", "-gcflags=-m", "-o", t.TempDir()+"/radix.test", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go test -c -gcflags=-m: %v\n%s", err, out)
	}
	for _, name := range []string{"Tree8", "Tree16", "Tree22", "Tree22GC", "Tree22Slab", "Tree32", "Tree32Slab", "Tree64", "Tree64Slab"} {
		can := regexp.MustCompile(`can inline \(\*` + name + `(\[go\.shape\.uint64\])?\)\.Lookup\n`)
		if !can.Match(out) {
			t.Errorf("the compiler does not inline %s.Lookup", name)
		}
	}
}
