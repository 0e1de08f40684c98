package task_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kpidd/kpidd/internal/privileged"
)

// fromSeed lets a random script that failed be played again.
var fromSeed = flag.Uint64("conform.seed", 0, "first seed of the random conformance scripts")

// long asks for the long form of tests that have one.
func long() bool { return os.Getenv("KPIDD_LONG") == "1" }

// handWritten are the scripts under testdata/conform.
func handWritten(t testing.TB) (all []*script) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "conform", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %d scripts, error %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sc, err := parse(filepath.Base(path), string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sc)
	}
	return all
}

// The engine gives what each hand-written script says that the kernel gives.
func TestConformance(t *testing.T) {
	for _, sc := range handWritten(t) {
		for where, below := range map[string]bool{"root": false, "below": true} {
			if sc.below && !below {
				continue
			}
			t.Run(strings.TrimSuffix(sc.name, ".txt")+"/"+where, func(t *testing.T) {
				tr, err := onEngine(sc, below, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range sc.expected(tr.Results) {
					t.Error(d)
				}
			})
		}
	}
}

// Every step of a hand-written script says what it gives, and together they are
// about every rule of M1 and M5.
func TestConformanceRules(t *testing.T) {
	cited := map[string]bool{}
	for _, sc := range handWritten(t) {
		for _, rule := range sc.rules {
			cited[rule] = true
		}
		for i := range sc.steps {
			if s := &sc.steps[i]; s.want == nil {
				t.Errorf("%s:%d: %s does not say what it gives", sc.name, s.line, s)
			}
		}
	}
	for _, rule := range []string{"M1.4", "M1.5", "M1.6", "M1.7", "M1.8", "M1.9", "M5", "M5.1", "M5.3", "M5.4", "M5.5"} {
		if !cited[rule] {
			t.Errorf("no script is about %s", rule)
		}
	}
}

func onKernel(puppet string, sc *script, follow *trace) (*trace, error) {
	k, err := newKernel(puppet)
	if err != nil {
		return nil, err
	}
	defer k.close()
	tr, err := play(sc, k, follow)
	if err == nil {
		tr.Hits[hitAutoReap] += k.reaped
	}
	return tr, err
}

// agree plays a script on both machines and says where they differ.
func agree(puppet string, sc *script, into *tally, mu *sync.Mutex) (kernel *trace, differences []string, err error) {
	kernel, err = onKernel(puppet, sc, nil)
	if err != nil {
		return nil, nil, err
	}
	mu.Lock()
	into.count(kernel)
	mu.Unlock()
	for _, below := range []bool{false, true} {
		if sc.below && !below {
			continue
		}
		engine, err := onEngine(sc, below, kernel)
		if err != nil {
			return nil, nil, err
		}
		mu.Lock()
		differences = append(differences, into.compare(sc, kernel, engine)...)
		mu.Unlock()
	}
	return kernel, differences, nil
}

// TestPrivilegedConformanceScripts: the running kernel gives what each hand-written
// script says, and the engine does as the kernel.
func TestPrivilegedConformanceScripts(t *testing.T) {
	privileged.Hold(t)
	puppet := buildPuppet(t)
	sum, mu := newTally(), new(sync.Mutex)
	for _, sc := range handWritten(t) {
		kernel, differences, err := agree(puppet, sc, sum, mu)
		if err != nil {
			t.Errorf("%s: %v", sc.name, err)
			continue
		}
		for _, d := range append(sc.expected(kernel.Results), differences...) {
			t.Errorf("%s: %s", sc.name, d)
		}
	}
	t.Log(sum)
}

// TestPrivilegedConformanceKernel: two runs of a script on the kernel give the same,
// so that a difference to the engine means something.
func TestPrivilegedConformanceKernel(t *testing.T) {
	privileged.Hold(t)
	puppet := buildPuppet(t)
	for seed := range uint64(20) {
		sc := generate(seed, 50)
		first, err := onKernel(puppet, sc, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, sc)
		}
		second, err := onKernel(puppet, sc, first)
		if err != nil {
			t.Fatalf("%v\n%s", err, sc)
		}
		for _, d := range newTally().compare(sc, first, second) {
			t.Errorf("seed %d: %s", seed, d)
		}
	}
}

const (
	randomScripts = 500
	randomSteps   = 50
	randomBudget  = 90 * time.Second
	failuresShown = 3
)

// TestPrivilegedConformanceRandom: kernel and engine agree on random scripts, and
// each rule with a visible effect was hit often enough to mean something.
func TestPrivilegedConformanceRandom(t *testing.T) {
	privileged.Hold(t)
	seed, scripts := *fromSeed, randomScripts
	if long() && seed == 0 {
		seed, scripts = rand.Uint64()>>1, 10*randomScripts
	}
	t.Logf("seeds from %d", seed)
	r := &randomRun{t: t, puppet: buildPuppet(t), sum: newTally(), next: seed, end: seed + uint64(scripts)}
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(r.work)
	}
	wg.Wait()
	took := time.Since(begin)
	t.Log(r.sum, "in", took.Round(time.Millisecond))
	if took > randomBudget && !long() {
		t.Errorf("took %v, want at most %v", took, randomBudget)
	}
	if share := r.sum.share(); share > maxAllowed {
		t.Errorf("%.2f %% of comparisons used a set of allowed outcomes, want at most %.0f %%", 100*share, 100*maxAllowed)
	}
	for _, rule := range hitRules {
		if n := r.sum.hits[rule]; n < hitsWanted && r.failures == 0 {
			t.Errorf("%s: hit %d times, want %d", rule, n, hitsWanted)
		}
	}
}

// randomRun shares out seeds among workers.
type randomRun struct {
	t      *testing.T
	puppet string

	mu        sync.Mutex
	sum       *tally
	next, end uint64
	failures  int
}

func (r *randomRun) take() (seed uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == r.end || r.failures >= failuresShown {
		return 0, false
	}
	r.next++
	return r.next - 1, true
}

func (r *randomRun) work() {
	for seed, ok := r.take(); ok; seed, ok = r.take() {
		sc := generate(seed, randomSteps)
		_, differences, err := agree(r.puppet, sc, r.sum, &r.mu)
		if err == nil && differences == nil {
			continue
		}
		r.mu.Lock()
		r.failures++
		r.mu.Unlock()
		if err != nil {
			r.t.Errorf("seed %d: %v\n%s", seed, err, sc)
			continue
		}
		r.explain(seed, sc)
	}
}

// explain reports the shortest script that still shows a difference.
func (r *randomRun) explain(seed uint64, sc *script) {
	differs := func(sc *script) []string {
		_, differences, err := agree(r.puppet, sc, newTally(), new(sync.Mutex))
		if err != nil {
			return nil
		}
		return differences
	}
	small := shrink(sc, 300, func(sc *script) bool { return differs(sc) != nil })
	all := slices.Concat([]string{small.String()}, differs(small))
	r.t.Errorf("seed %d, shrunk to %d steps:\n%s", seed, len(small.steps), strings.Join(all, "\n"))
}
