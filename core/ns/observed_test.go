package ns

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kpidd/kpidd/arch/archtest"
)

// M2, Live: one that an event says was just made goes in without a search,
// replacing a dead holder of its number, of whichever kind.
func TestObservedCreated(t *testing.T) {
	for _, k := range []Kind{IPC, Net} {
		o := NewObserved()
		old := o.Created(IPC, 0xF0000000)
		o.Share(old)
		l := o.Created(k, 0xF0000000)
		if l.Gen == old.Gen || l.Inum != old.Inum {
			t.Errorf("got %+v after %+v, want another generation", l, old)
		}
		if got, ok := o.Lookup(k, l.Inum); !ok || got != l {
			t.Errorf("lookup: got %+v, %v, want %+v", got, ok, l)
		}
		if _, ok := o.Lookup(IPC, l.Inum); ok != (k == IPC) {
			t.Errorf("the dead holder can be found: %v", ok)
		}
		// Processes of the dead one, told of late.
		o.Leave(old)
		o.Share(old)
		o.Leave(old)
		if o.Count(k) != 1 || o.Count(IPC)+o.Count(Net) != 1 {
			t.Errorf("%d ipc and %d net namespaces, want one of kind %v", o.Count(IPC), o.Count(Net), k)
		}
		if got, want := o.Stats(), (ObservedStats{CreatedUnsearched: 2, Replaced: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		o.Leave(l)
		if _, ok := o.Lookup(k, l.Inum); ok || o.Count(k) != 0 {
			t.Error("a namespace outlived its last process")
		}
	}
}

// M2, Live: one met otherwise goes through the keyed path.
func TestObservedMet(t *testing.T) {
	o := NewObserved()
	for _, inum := range []uint32{kinds[UTS].inum, kinds[Mount].inum, firstDynamic, lastNumber, 0, firstNumber - 1} {
		a := o.Met(UTS, inum)
		b := o.Met(UTS, inum)
		if a != b {
			t.Errorf("number %d: got %+v and %+v, want one life", inum, a, b)
		}
		o.Leave(a)
		if got, ok := o.Lookup(UTS, inum); !ok || got != a {
			t.Errorf("number %d: got %+v, %v with one process left", inum, got, ok)
		}
		c := o.Met(Cgroup, inum) // reused between kinds
		if c.Gen == a.Gen || o.Count(UTS) != 0 || o.Count(Cgroup) != 1 {
			t.Errorf("number %d: another kind got %+v after %+v", inum, c, a)
		}
		o.Leave(b)
		o.Leave(c)
		d := o.Met(Cgroup, inum)
		if d.Gen == c.Gen {
			t.Errorf("number %d: two lives share a generation", inum)
		}
		o.Leave(d)
	}
	if got, want := o.Stats(), (ObservedStats{KeyedSearches: 24, Replaced: 6}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := o.tree.Check(); err != nil {
		t.Error(err)
	}
	o.gen = ^uint32(0)
	if l := o.Created(IPC, 1); l.Gen != 1 {
		t.Errorf("generation %d after the last, want 1: 0 is no life", l.Gen)
	}
}

// observedModel is a list of what is known, searched from its beginning.
type observedModel []struct {
	life  Life
	kind  Kind
	users int
}

func (m *observedModel) find(inum uint32) int {
	for i, h := range *m {
		if h.life.Inum == inum {
			return i
		}
	}
	return -1
}

func (m *observedModel) enter(l Life, k Kind) {
	if i := m.find(l.Inum); i >= 0 {
		*m = append((*m)[:i], (*m)[i+1:]...)
	}
	*m = append(*m, struct {
		life  Life
		kind  Kind
		users int
	}{l, k, 1})
}

func runObserved(t testing.TB, b []byte) {
	o, m := NewObserved(), observedModel{}
	lives := []Life{{}}
	for ; len(b) >= 3; b = b[3:] {
		k, inum := Kind(b[1]%Kinds), firstDynamic+uint32(b[1]/Kinds%6)
		l := lives[int(b[2])%len(lives)]
		i := m.find(l.Inum)
		mine := i >= 0 && m[i].life == l
		switch b[0] % 4 {
		case 0:
			lives = append(lives, o.Created(k, inum))
			m.enter(lives[len(lives)-1], k)
		case 1:
			i := m.find(inum)
			shared := i >= 0 && m[i].kind == k
			l := o.Met(k, inum)
			lives = append(lives, l)
			switch {
			case shared && l != m[i].life:
				t.Fatalf("met %v %d: got %+v, want %+v", k, inum, l, m[i].life)
			case shared:
				m[i].users++
			default:
				m.enter(l, k)
			}
		case 2:
			if o.Share(l); mine {
				m[i].users++
			}
		case 3:
			if o.Leave(l); mine {
				if m[i].users--; m[i].users == 0 {
					m = append(m[:i], m[i+1:]...)
				}
			}
		}
		compareObserved(t, o, m)
	}
}

func compareObserved(t testing.TB, o *Observed, m observedModel) {
	var count [Kinds]int
	gens := map[uint32]bool{}
	for _, h := range m {
		count[h.kind]++
		if gens[h.life.Gen] {
			t.Fatalf("generation %d twice", h.life.Gen)
		}
		gens[h.life.Gen] = true
		if l, ok := o.Lookup(h.kind, h.life.Inum); !ok || l != h.life {
			t.Fatalf("lookup of %v %+v: got %+v, %v", h.kind, h.life, l, ok)
		}
	}
	for k := range Kind(Kinds) {
		if got := o.Count(k); got != count[k] {
			t.Fatalf("%d of kind %v, want %d", got, k, count[k])
		}
	}
}

func TestModelObserved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 3000)
	for range 40 {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		runObserved(t, b)
	}
}

func FuzzObserved(f *testing.F) {
	f.Add([]byte{0, 9, 0, 1, 9, 0, 3, 0, 1, 1, 10, 0, 2, 0, 3, 3, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) { runObserved(t, b) })
}

// Readers beside writers: a generation belongs to one kind and number for ever.
func TestStressObserved(t *testing.T) {
	o := NewObserved()
	var seen sync.Map // generation -> kind
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := uint32(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				k := Kind(i % Kinds)
				if l, ok := o.Lookup(k, firstDynamic+i/Kinds%4); ok {
					if was, _ := seen.LoadOrStore(l.Gen, k); was != k {
						t.Errorf("generation %d was of kind %v, is of %v", l.Gen, was, k)
						return
					}
				}
			}
		})
	}
	rounds := int(archtest.StressTime().Milliseconds()) * 50
	for id := range uint64(3) {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(id, 1))
			for range rounds {
				k, inum := Kind(rnd.IntN(Kinds)), firstDynamic+rnd.Uint32N(4)
				l := o.Met(k, inum)
				if rnd.IntN(3) == 0 {
					o.Leave(l)
					l = o.Created(k, inum)
				}
				o.Share(l)
				o.Leave(l)
				o.Leave(l)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for k := range Kind(Kinds) {
		if got := o.Count(k); got != 0 {
			t.Errorf("%d of kind %v are left without a process", got, k)
		}
	}
}
