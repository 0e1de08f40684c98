package pid

import (
	"math/rand/v2"
	"testing"
)

// M1.2: tag Free leads to the lowest free number, and to nothing when there is none.
func TestIDMap(t *testing.T) {
	m := newIDMap()
	next := func(from, want uint32, ok bool) {
		t.Helper()
		if got, found := m.next(from); found != ok || ok && got != want {
			t.Errorf("next free from %d: got %d, %v; want %d, %v", from, got, found, want, ok)
		}
	}
	next(0, 1, true)
	next(Max-1, Max-1, true)
	next(Max, 0, false)
	next(^uint32(0), 0, false)
	for nr := uint32(1); nr < 64*64*64+5; nr++ {
		m.take(nr)
	}
	next(1, 64*64*64+5, true)
	for nr := uint32(64*64*64 + 5); nr < Max; nr++ {
		if !m.take(nr) {
			t.Fatalf("number %d was taken", nr)
		}
	}
	next(0, 0, false)
	if m.take(7) {
		t.Error("7 was taken twice")
	}
	m.give(4096)
	next(0, 4096, true)
	next(4096, 4096, true)
	next(4097, 0, false)
	for l, words := range m.levels[1:] {
		set := 0
		for _, w := range words {
			if w != 0 {
				set++
			}
		}
		if set != 1 {
			t.Errorf("level %d has %d words with bits, want 1", l+1, set)
		}
	}
}

func TestModelIDMap(t *testing.T) {
	const keys = 3 * 64 * 64
	m := newIDMap()
	taken := map[uint32]bool{0: true}
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		nr := r.Uint32N(keys)
		switch r.IntN(5) {
		case 0:
			if taken[nr] && nr != 0 {
				m.give(nr)
				delete(taken, nr)
			}
		case 1:
			want := nr
			for taken[want] {
				want++
			}
			if got, ok := m.next(nr); !ok || got != want {
				t.Fatalf("next free from %d: got %d, %v; want %d", nr, got, ok, want)
			}
		default:
			if got := m.take(nr); got == taken[nr] {
				t.Fatalf("take %d: got %v, want %v", nr, got, !taken[nr])
			}
			taken[nr] = true
		}
	}
}

func BenchmarkIDMap(b *testing.B) {
	m := newIDMap()
	for nr := uint32(1); nr < Max/2; nr++ {
		m.take(nr)
	}
	for b.Loop() {
		nr, _ := m.next(1)
		m.take(nr)
		m.give(nr)
	}
}
