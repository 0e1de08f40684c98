package task_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tally sums up what a run of the conformance tests has compared.
type tally struct {
	scripts, comparisons int
	allowed              map[string]int // reason -> comparisons
	hits                 map[string]int // rule -> times that it had a visible effect
}

func newTally() *tally { return &tally{allowed: map[string]int{}, hits: map[string]int{}} }

// maxAllowed is the greatest share of comparisons that may use a set of outcomes.
const maxAllowed = 0.02

// share is the part of all comparisons that used a set of allowed outcomes.
func (t *tally) share() float64 {
	n := 0
	for _, used := range t.allowed {
		n += used
	}
	return float64(n) / float64(max(t.comparisons, 1))
}

func (t *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d scripts, %d comparisons, %.2f %% of them with a set of allowed outcomes", t.scripts, t.comparisons, 100*t.share())
	for _, m := range []map[string]int{t.allowed, t.hits} {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "\n%8d %s", m[key], key)
		}
	}
	return b.String()
}

// Why a wait may give another zombie than on the kernel.
const (
	anyOrder = "allowed: threads that end together give their children away in any order"
	ownLists = "allowed: a thread is asked first for its own children, the engine has one list a process"
)

// count adds what a script has shown on the kernel.
func (t *tally) count(kernel *trace) {
	t.scripts++
	for rule, n := range kernel.Hits {
		t.hits[rule] += n
	}
}

// compare holds what the engine did against what the kernel did, field by field,
// and says what differs.
func (t *tally) compare(sc *script, kernel, engine *trace) (differences []string) {
	differ := func(what string, k, e any) {
		t.comparisons++
		if a, b := fmt.Sprint(k), fmt.Sprint(e); a != b {
			differences = append(differences, fmt.Sprintf("%s: kernel %s, engine %s", what, a, b))
		}
	}
	for i := range sc.steps {
		s := &sc.steps[i]
		k, e := kernel.Results[i], engine.Results[i]
		if reason := engine.Followed[i]; reason != "" {
			t.allowed[reason]++
		}
		differ(fmt.Sprintf("line %d, %s", s.line, s), k, e)
	}
	for _, name := range both(kernel.Numbers, engine.Numbers) {
		differ("numbers of "+name, kernel.Numbers[name], engine.Numbers[name])
	}
	for _, name := range both(kernel.IDs, engine.IDs) {
		differ("ids of "+name, kernel.IDs[name], engine.IDs[name])
	}
	differ("listing", listed(kernel.Listing), listed(engine.Listing))
	for i := range min(len(kernel.Listing), len(engine.Listing)) {
		k, e := &kernel.Listing[i], &engine.Listing[i]
		what := fmt.Sprintf("process %d: ", k.Numbers[0])
		differ(what+"numbers", k.Numbers, e.Numbers)
		differ(what+"parent", k.PPID, e.PPID)
		differ(what+"group", k.PGID, e.PGID)
		differ(what+"session", k.SID, e.SID)
		differ(what+"state", k.State, e.State)
		differ(what+"tasks", k.Tasks, e.Tasks)
	}
	return differences
}

func both[V any](a, b map[string]V) []string {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func listed(all []process) (numbers []int) {
	for i := range all {
		numbers = append(numbers, all[i].Numbers[0])
	}
	return numbers
}

// expected says which results are not what the script says itself.
func (sc *script) expected(results []string) (differences []string) {
	for i := range sc.steps {
		s := &sc.steps[i]
		if s.want != nil && results[i] != s.want[0] {
			differences = append(differences, fmt.Sprintf("line %d, %s: got %s, want %s", s.line, s, results[i], s.want[0]))
		}
	}
	return differences
}

// The rules with a visible effect, and the least number of times that a run of all
// random scripts has to hit each.
const (
	hitLevels    = "M1.4: numbers on several levels"
	hitGivenBack = "M1.4: a clone that failed gave everything back"
	hitListing   = "M1.8: a listing of leaders among threads, in order"
	hitErrors    = "M1.9: the kernel's error for numbers"
	hitLeader    = "M5.4: the last thread went beside a zombie leader"
	hitAutoReap  = "M5.4: nobody had to wait for it"
	hitAdopted   = "re-parenting: to a reaper or subreaper"
	hitThread    = "re-parenting: to a thread of the same group"
	hitReaper    = "death of a reaper"
	hitSession   = "sessions and groups: moved"
	hitRefused   = "sessions and groups: refused"
	hitWait      = "wait: reaped"
	hitNoWait    = "wait: nobody"
	hitShared    = "M2: a second mount shares the superblock"
	hitCleared   = "M2: a new namespace does not find the superblock of a dead one"

	hitsWanted = 50
)

var hitRules = []string{
	hitLevels, hitGivenBack, hitListing, hitErrors, hitLeader, hitAutoReap, hitAdopted, hitThread, hitReaper,
	hitSession, hitRefused, hitWait, hitNoWait, hitShared, hitCleared,
}

// nothing tells that a step was not taken.
func nothing(result string) bool {
	return result == "dead" || result == "busy" || result == "refused" || result == "gone"
}

// countStep counts the rules whose effect a step has shown.
func (tr *trace) countStep(s *step, result string, c *cast) {
	hit := func(rule string, when bool) {
		if when {
			tr.Hits[rule]++
		}
	}
	if nothing(result) {
		return
	}
	ok := strings.HasPrefix(result, "ok")
	by := c.actors[s.actor]
	switch s.verb {
	case doClone:
		hit(hitLevels, ok && len(c.actors[s.name].numbers) > 1)
		hit(hitErrors, !ok)
		hit(hitGivenBack, !ok && s.levels(by) > 1 && result != "EINVAL")
	case doExit:
		l := by.leader
		last := by != l && l.dead
		for _, a := range c.order {
			last = last && (a.leader != l || a.dead)
		}
		hit(hitLeader, last)
		for _, a := range c.order {
			hit(hitThread, !l.dead && a.by == by && a.leader == a && !a.dead)
		}
	case doList:
		hit(hitListing, strings.Contains(result, " "))
	case doSetsid, doSetpgid:
		hit(hitSession, ok)
		hit(hitRefused, !ok)
	case doMQueue:
		hit(hitShared, strings.HasPrefix(result, "ok as"))
		hit(hitCleared, result == "ok new" && c.outlived())
	case doWait:
		hit(hitWait, strings.Contains(result, " "))
		hit(hitNoWait, !strings.Contains(result, " "))
	}
}

// countListing counts the rules whose effect the state at the end shows.
func (tr *trace) countListing(c *cast) {
	at := map[int]*process{}
	threads := false
	for i := range tr.Listing {
		p := &tr.Listing[i]
		at[p.Numbers[0]] = p
		threads = threads || len(p.Tasks) > 1
	}
	if threads && len(tr.Listing) > 2 {
		tr.Hits[hitListing]++
	}
	for _, a := range c.order {
		if a.leader != a || a.by == nil {
			continue
		}
		if a.dead && a.numbers[len(a.numbers)-1] == 1 {
			tr.Hits[hitReaper]++
		}
		p := at[a.numbers[0]]
		if p != nil && !a.dead && a.by.leader.dead && p.PPID != a.by.leader.numbers[0] {
			tr.Hits[hitAdopted]++
		}
	}
}
