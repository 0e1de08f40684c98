package field

import (
	"fmt"
	"strings"
	"testing"
)

// jsonKeys are promised to scripts: docs and the command line name them.
var jsonKeys = map[ID]string{
	PID: "pid", TID: "tid", PPID: "ppid", PPIDAtFork: "ppid_at_fork", Comm: "comm", State: "state",
	Threads: "threads", StartTicks: "start_ticks", StartNs: "start_ns", StartTime: "start_time",
	LStart: "start_time", Gen: "gen", KThread: "kthread",
}

func TestCatalogue(t *testing.T) {
	if got, want := len(Catalogue), len(jsonKeys); got != want {
		t.Errorf("got %d fields, want %d", got, want)
	}
	for i, f := range Catalogue {
		if f.JSON != jsonKeys[ID(i)] {
			t.Errorf("%s: JSON key: got %q, want %q", f.Name, f.JSON, jsonKeys[ID(i)])
		}
		if f.Width < len(f.Header) {
			t.Errorf("%s: width %d is less than the header's %d", f.Name, f.Width, len(f.Header))
		}
		if f.Doc == "" || f.Source == "" || f.Type == 0 || f.Visible != All {
			t.Errorf("%s: incomplete: %+v", f.Name, f)
		}
		if number := f.Type == Uint32 || f.Type == Uint64 || f.Type == Int64; number && !f.Right {
			t.Errorf("%s: a number aligned to the left", f.Name)
		}
	}
}

// Names and headers are those of ps(1), so that scripts need no change.
func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name   string
		id     ID
		header string
	}{
		{"pid", PID, "PID"}, {"tgid", PID, "TGID"}, {"ppid", PPID, "PPID"},
		{"tid", TID, "TID"}, {"lwp", TID, "LWP"}, {"spid", TID, "SPID"},
		{"nlwp", Threads, "NLWP"}, {"thcount", Threads, "THCNT"},
		{"comm", Comm, "COMMAND"}, {"ucomm", Comm, "COMMAND"}, {"ucmd", Comm, "CMD"},
		{"s", State, "S"}, {"state", State, "S"},
		{"lstart", LStart, "STARTED"}, {"start_time", StartTime, "START"},
	} {
		id, header, ok := Lookup(c.name)
		if !ok || id != c.id || header != c.header {
			t.Errorf("Lookup(%q): got %d, %q, %v, want %d, %q", c.name, id, header, ok, c.id, c.header)
		}
	}
	for _, name := range []string{"", "PID", "pid ", "stat", "nonsense"} {
		if _, _, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q): found, want nothing", name)
		}
	}
}

func TestLookupFindsEveryName(t *testing.T) {
	for i, f := range Catalogue {
		for _, a := range append([]Alias{{f.Name, f.Header}}, f.Aliases...) {
			if id, header, ok := Lookup(a.Name); !ok || id != ID(i) || header != a.Header {
				t.Errorf("Lookup(%q): got %d, %q, %v, want %d, %q", a.Name, id, header, ok, i, a.Header)
			}
			if a.Name != strings.ToLower(a.Name) || a.Header != strings.ToUpper(a.Header) {
				t.Errorf("name %q, header %q: want lower case, upper case", a.Name, a.Header)
			}
		}
	}
}

func TestLookupAllocs(t *testing.T) {
	found := true
	if got := testing.AllocsPerRun(100, func() {
		_, _, ok := Lookup("thcount")
		found = found && ok
	}); got != 0 || !found {
		t.Errorf("got %v allocations, found: %v; want 0, true", got, found)
	}
}

func ExampleLookup() {
	id, header, _ := Lookup("lwp")
	fmt.Println(header, Catalogue[id].JSON)
	// Output: LWP tid
}
