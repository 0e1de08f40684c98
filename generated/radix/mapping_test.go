package radix

import (
	"runtime/debug"
	"syscall"
	"testing"
)

const osPage = 4096

func mapping(t *testing.T, size, prot int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, (size+osPage-1)/osPage*osPage, prot, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Fatalf("map %d bytes: %v", size, err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Errorf("unmap: %v", err)
		}
	})
	return b
}

func protect(t *testing.T, b []byte, prot int) {
	t.Helper()
	if err := syscall.Mprotect(b, prot); err != nil {
		t.Fatalf("protect: %v", err)
	}
}

// Readers need no right to write, and a tree made for reading stores nothing.
func TestReadOnlyMapping(t *testing.T) {
	const rw = syscall.PROT_READ | syscall.PROT_WRITE
	mem := Tree22Memory{
		Dir:   mapping(t, Tree22DirBytes, rw),
		Tags:  mapping(t, Tree22TagBytes, rw),
		Slots: mapping(t, Tree22SlotBytes, rw),
	}
	w, err := NewTree22(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := shapes[0].borderKeys()
	for _, key := range keys {
		if err := w.InsertNew(key, key+1); err != nil {
			t.Fatal(err)
		}
		w.SetTag(key, Tree22TGID)
	}
	for _, b := range [][]byte{mem.Dir, mem.Tags, mem.Slots} {
		protect(t, b, syscall.PROT_READ)
	}

	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	r, err := NewTree22(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]Tree22Entry, len(keys)+1)
	if n, _, _ := r.Gang(0, Tree22TGID, buf); n != len(keys) {
		t.Errorf("Gang: got %d entries, want %d", n, len(keys))
	}
	if n, _, _ := r.GangAll(0, buf); n != len(keys) {
		t.Errorf("GangAll: got %d entries, want %d", n, len(keys))
	}
	for _, key := range keys {
		if got := r.Lookup(key); got != key+1 {
			t.Errorf("Lookup(%d): got %d, want %d", key, got, key+1)
		}
		if _, _, ok := r.NextTagged(key, Tree22TGID); !ok || !r.Tagged(key, Tree22TGID) {
			t.Errorf("key %d has lost its tag", key)
		}
	}
}

// No access to a leaf page before back has provided it, by writer or reader: the
// memory of absent pages cannot even be read here.
func TestAbsentPagesAreNotTouched(t *testing.T) {
	if syscall.Getpagesize() != osPage {
		t.Skipf("pages of %d bytes here, the test protects pages of %d", syscall.Getpagesize(), osPage)
	}
	mem := Tree22Memory{
		Dir:   mapping(t, Tree22DirBytes, syscall.PROT_READ|syscall.PROT_WRITE),
		Tags:  mapping(t, Tree22TagBytes, syscall.PROT_NONE),
		Slots: mapping(t, Tree22SlotBytes, syscall.PROT_NONE),
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tr, err := NewTree22(mem, func(page int) error {
		protect(t, mem.Slots[page*Tree22PageSlotBytes:][:Tree22PageSlotBytes], syscall.PROT_READ|syscall.PROT_WRITE)
		protect(t, mem.Tags[page*Tree22PageTagBytes&^(osPage-1):][:osPage], syscall.PROT_READ|syscall.PROT_WRITE)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]Tree22Entry, 8)
	present := 0
	for page := uint32(0); page < Tree22Pages; page += 33 {
		key := page*Tree22PageKeys + page%Tree22PageKeys
		for _, probe := range []uint32{key, key ^ 1<<21, (key + 5*Tree22PageKeys) % Tree22Keys} {
			tr.Lookup(probe)
			tr.Tagged(probe, Tree22TGID)
			tr.ClearTag(probe, Tree22TGID)
			tr.NextTagged(probe, Tree22TGID)
			tr.Gang(probe, Tree22TGID, buf)
			tr.GangAll(probe, buf)
		}
		tr.Delete(key)
		if err := tr.InsertNew(key, 1); err != nil {
			t.Fatal(err)
		}
		tr.SetTag(key, Tree22TGID)
		if page%2 == 0 {
			tr.Delete(key)
		}
		present++
	}
	if got := tr.Pages(); got != present {
		t.Errorf("Pages: got %d, want %d", got, present)
	}
}
