package structures

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

const (
	pairs     = 12 // bursts of kpidd's contender and another, one beside the other
	burstTime = 3 * time.Millisecond
)

// kinds are all rows, by what they are about.
var kinds = []struct {
	name string
	rows func() []row
}{
	{"lookup", lookupRows},
	{"change", changeRows},
	{"record", recordRows},
	{"walk", walkRows},
	{"section", sectionRows},
	{"grace", graceRows},
	{"seqlock", seqlockRows},
	{"queue", queueRows},
	{"gc", gcRows},
}

// quick reports whether the benchmarks are only to run once each.
func quick() bool {
	once := flag.Lookup("test.benchtime").Value.String() == "1x"
	return once && os.Getenv("KPIDD_BENCH_LOAD") != "1"
}

// TestTable prints all rows: for each contender the median of its bursts and of
// kpidd's beside them, and the median of the ratios of the pairs.
// KPIDD_BENCH_TABLE is the kind of rows to print, or 1 for all.
func TestTable(t *testing.T) {
	want := os.Getenv("KPIDD_BENCH_TABLE")
	if want == "" {
		t.Skip("takes minutes: set KPIDD_BENCH_TABLE to 1, or to a kind of rows")
	}
	fmt.Println("| what | kpidd | ns/op | peer | ns/op | peer / kpidd |")
	fmt.Println("|---|---|---:|---|---:|---:|")
	known := want == "1"
	for _, kind := range kinds {
		if want != "1" && want != kind.name {
			continue
		}
		known = true
		for _, r := range kind.rows() {
			t.Run(kind.name+"/"+r.name, func(t *testing.T) { compare(t, kind.name, r) })
		}
	}
	if !known {
		t.Errorf("KPIDD_BENCH_TABLE=%s is no kind of rows", want)
	}
}

// compare prints one row.
func compare(t *testing.T, kind string, r row) {
	team := newTeam()
	defer team.close()
	ours := r.contenders[0]
	for _, c := range r.contenders[1:] {
		if c.missing != nil {
			if err := c.missing(); err != nil {
				fmt.Printf("| %s %s | %s | | %s | | skipped: %v |\n", kind, r.name, ours.name, c.name, err)
				continue
			}
		}
		// One set-up may lie badly in the caches for all of its life.
		setUps := 3
		if r.heavy {
			setUps = 1
		}
		var m measured
		for range setUps {
			m.add(t, team, r, ours, c, pairs/setUps)
		}
		fmt.Printf("| %s %s | %s | %s | %s | %s | %s |\n", kind, r.name,
			ours.name, figure(median(m.ours)), c.name, figure(median(m.peer)), figure(median(m.ratios)))
	}
}

// measured are ns of an operation, pair by pair, and their ratios.
type measured struct{ ours, peer, ratios []float64 }

// add sets both contenders up and measures n pairs of bursts.
func (m *measured) add(t *testing.T, team *team, r row, ours, peer contender, n int) {
	t.Helper()
	a, b := ours.setUp(), peer.setUp()
	defer a.end()
	defer b.end()
	runtime.GC() // what was set up before
	aOps, bOps := calibrate(t, team, a, r), calibrate(t, team, b, r)
	for i := range n {
		var aNs, bNs float64
		if i%2 == 0 {
			aNs = perOp(t, team, a, r, aOps)
			bNs = perOp(t, team, b, r, bOps)
		} else {
			bNs = perOp(t, team, b, r, bOps)
			aNs = perOp(t, team, a, r, aOps)
		}
		m.ours, m.peer, m.ratios = append(m.ours, aNs), append(m.peer, bNs), append(m.ratios, bNs/aNs)
	}
}

// perOp returns the time of one operation of a burst in ns.
func perOp(t *testing.T, team *team, b bench, r row, ops int) float64 {
	return float64(team.burst(t, b, r.threads, ops).Nanoseconds()) / float64(ops)
}

// calibrate returns how many operations take about burstTime.
func calibrate(t *testing.T, team *team, b bench, r row) int {
	ops := 1
	team.burst(t, b, r.threads, ops) // warm up
	for ops < opsMax/2 {
		took := team.burst(t, b, r.threads, ops)
		if took >= burstTime/4 {
			return max(1, min(opsMax-1, int(float64(ops)*float64(burstTime)/float64(took))))
		}
		ops *= 2
	}
	return ops
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// figure prints three digits, and whole numbers in full.
func figure(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
