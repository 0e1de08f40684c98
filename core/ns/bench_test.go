package ns

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var sizes = []int{10, 1_000, 10_000, 100_000}

func sizeName(n int) string {
	if n >= 1000 {
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}

// populated is a registry with so many IPC namespaces beside the first.
func populated(tb testing.TB, live int) *Registry {
	r := New(Hooks{})
	for range live {
		if _, err := r.create(IPC, nil, r.First().At(User), 0); err != nil {
			tb.Fatal(err)
		}
	}
	return r
}

// createAndBury makes an IPC namespace, with its file system, as a process asks
// for it, and buries it.
//
//go:noinline
func createAndBury(r *Registry) {
	s, err := r.Unshare(r.First(), unix.CLONE_NEWIPC, root)
	if err != nil {
		panic(err)
	}
	s.Put()
}

// BenchmarkCreate is one IPC namespace made and buried among so many live ones.
func BenchmarkCreate(b *testing.B) {
	for _, live := range sizes {
		r := populated(b, live)
		for _, how := range ways {
			b.Run(fmt.Sprintf("%v/live=%s", how, sizeName(live)), func(b *testing.B) {
				r.Use(how)
				b.ReportAllocs()
				for b.Loop() {
					createAndBury(r)
				}
			})
		}
	}
}

// M2: the creation of a namespace does not depend on how many there are. The
// target is 1.1; twice that distance, and 1.3 at least, is what a shared machine
// can hold.
func TestCreateFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	few, many := populated(t, 10), populated(t, 100_000)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // marking is paid by whoever allocates
	best := map[*Registry]time.Duration{few: math.MaxInt64, many: math.MaxInt64}
	const batch = 500
	for range 100 {
		for _, r := range []*Registry{few, many} {
			start := time.Now()
			for range batch {
				createAndBury(r)
			}
			best[r] = min(best[r], time.Since(start))
		}
	}
	ratio := float64(best[many]) / float64(best[few])
	t.Logf("among 10: %v, among 100,000: %v: %.3f", best[few]/batch, best[many]/batch, ratio)
	if ratio > 1.3 && !raceEnabled {
		t.Errorf("M2: among 100,000 creation takes %.2f times as long as among 10, want 1.3 at most", ratio)
	}
}

//go:noinline
func sumLookups(r *Registry, k Kind, from, to uint32) (sum uint64) {
	for inum := from; inum < to; inum++ {
		if n := r.Lookup(k, inum); n != nil {
			sum += n.id
		}
	}
	return sum
}

func BenchmarkLookup(b *testing.B) {
	for _, live := range sizes {
		r := populated(b, live)
		b.Run("live="+sizeName(live), func(b *testing.B) {
			for n := 0; n < b.N; n += live {
				sumLookups(r, IPC, firstDynamic, firstDynamic+uint32(min(live, b.N-n)))
			}
		})
	}
}

func BenchmarkSuperblock(b *testing.B) {
	n := New(Hooks{}).First().At(IPC)
	for b.Loop() {
		lookSuperblock(n)
	}
}

//go:noinline
func lookSuperblock(n *Namespace) *Superblock { return n.Superblock(MQueue) }

// Lookups, and a fork that shares its parent's namespaces, allocate nothing.
func TestAllocs(t *testing.T) {
	r := populated(t, 1000)
	s, n := r.First(), r.Lookup(IPC, firstDynamic+500)
	sb := n.Superblock(MQueue)
	o := NewObserved()
	life := o.Created(IPC, firstDynamic)
	for name, f := range map[string]func(){
		"Lookup":     func() { r.Lookup(IPC, n.inum) },
		"Get":        func() { r.Get(IPC, n.inum).Put() },
		"Superblock": func() { n.Superblock(MQueue) },
		"Namespace":  func() { sb.Namespace().Put() },
		"Clone":      func() { c, _ := r.Clone(s, 0, nobody); c.Put() },
		"Observed.Lookup": func() {
			if _, ok := o.Lookup(IPC, firstDynamic); !ok {
				t.Error("not found")
			}
		},
		"Observed.Share": func() { o.Share(life); o.Leave(life) },
		"Observed.Met":   func() { o.Leave(o.Met(IPC, firstDynamic)) },
	} {
		if allocs := testing.AllocsPerRun(100, f); allocs != 0 {
			t.Errorf("%s: %v allocations, want 0", name, allocs)
		}
	}
	runtime.KeepAlive(r)
}
