package procfile

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// statLine builds a line of 52 fields; nums are fields 4 to 52, given as
// "field=value" where they are not 0.
func statLine(pid, name, state string, nums ...string) string {
	fields := make([]string, fieldLast+1)
	for i := range fields {
		fields[i] = "0"
	}
	for _, n := range nums {
		var i int
		var v string
		if _, err := fmt.Sscanf(n, "%d=%s", &i, &v); err != nil {
			panic(err)
		}
		fields[i] = v
	}
	return pid + " (" + name + ") " + state + " " + strings.Join(fields[fieldPPID:], " ") + "\n"
}

func comm(s string) (c [16]byte) {
	copy(c[:], s)
	return c
}

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, in string
		want     Stat
	}{
		{"every field", statLine("4194303", "sh", "S", "4=7", "5=8", "6=9", "7=34817", "9=4194560", "14=11", "15=12", "20=3", "22=123456", "23=18446744073709551615", "24=55", "52=768"),
			Stat{PID: 4194303, CommLen: 2, Comm: comm("sh"), State: 'S', PPID: 7, PGID: 8, SID: 9, TTYNr: 34817, Flags: 4194560,
				UtimeTicks: 11, StimeTicks: 12, NumThreads: 3, StartTicks: 123456, VsizeBytes: 1<<64 - 1, RSSPages: 55, ExitCode: 768}},
		{"blank in the name (B18)", statLine("5", "sle ep", "S", "4=1"), Stat{PID: 5, PPID: 1, CommLen: 6, Comm: comm("sle ep"), State: 'S'}},
		{"parenthesis, newline, no UTF-8 (B19, B20)", statLine("5", "a) R 1 \n\xff(b", "S", "4=42", "20=1"),
			Stat{PID: 5, PPID: 42, NumThreads: 1, CommLen: 11, Comm: comm("a) R 1 \n\xff(b"), State: 'S'}},
		{"name of parentheses", statLine("5", ")))(((", "R"), Stat{PID: 5, CommLen: 6, Comm: comm(")))((("), State: 'R'}},
		{"name that is a whole line", statLine("5", "1 (x) Z 0 0 0\n", "R"), Stat{PID: 5, CommLen: 14, Comm: comm("1 (x) Z 0 0 0\n"), State: 'R'}},
		{"no name", statLine("5", "", "R"), Stat{PID: 5, State: 'R'}},
		{"kernel thread (B29)", statLine("14", "ksoftirqd/0", "S", "4=2", "9=69238848"), Stat{PID: 14, PPID: 2, CommLen: 11, Comm: comm("ksoftirqd/0"), State: 'S', Flags: 69238848}},
		{"kernel thread with a long name", statLine("14", "rcu_exp_par_gp_kthread_worker/0", "S", "9=2097152"),
			Stat{PID: 14, CommLen: 31, Comm: comm("rcu_exp_par_gp_"), State: 'S', Flags: PFKThread}},
		{"worker that was idle", statLine("11", "kworker/0:1-events", "I", "9=69238880"), Stat{PID: 11, CommLen: 11, Comm: comm("kworker/0:1"), State: 'I', Flags: 69238880}},
		{"worker at work", statLine("11", "kworker/u8:2+flush-8:0", "R", "9=32"), Stat{PID: 11, CommLen: 12, Comm: comm("kworker/u8:2"), State: 'R', Flags: PFWQWorker}},
		{"worker without work", statLine("11", "kworker/0:1H", "I", "9=32"), Stat{PID: 11, CommLen: 12, Comm: comm("kworker/0:1H"), State: 'I', Flags: PFWQWorker}},
		{"rescuer", statLine("11", "kworker/R-mm_p", "I", "9=32"), Stat{PID: 11, CommLen: 14, Comm: comm("kworker/R-mm_p"), State: 'I', Flags: PFWQWorker}},
		{"rescuer at work", statLine("11", "kworker/R-a-b+a-b", "I", "9=32"), Stat{PID: 11, CommLen: 13, Comm: comm("kworker/R-a-b"), State: 'I', Flags: PFWQWorker}},
		{"same name, no worker", statLine("11", "kworker/0:1-ev", "S"), Stat{PID: 11, CommLen: 14, Comm: comm("kworker/0:1-ev"), State: 'S'}},
		{"while it is reaped", statLine("5", "x", "X", "5=-1", "6=-1"), Stat{PID: 5, CommLen: 1, Comm: comm("x"), State: 'X', PGID: -1, SID: -1}},
		{"negative numbers at their bound", statLine("5", "x", "R", "7=-2147483648", "24=-9223372036854775807", "52=-1"),
			Stat{PID: 5, CommLen: 1, Comm: comm("x"), State: 'R', TTYNr: -1 << 31, RSSPages: -1<<63 + 1, ExitCode: -1}},
		{"more fields than today", strings.TrimSuffix(statLine("5", "x", "R"), "\n") + " 1 2 3\n", Stat{PID: 5, CommLen: 1, Comm: comm("x"), State: 'R'}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Stat{CommLen: 99, Comm: comm("left from before")}
			if err := ParseStat([]byte(tt.in), &got); err != nil {
				t.Fatalf("ParseStat(%q): %v", tt.in, err)
			}
			if got != tt.want {
				t.Errorf("ParseStat(%q)\n got %+v\nwant %+v", tt.in, got, tt.want)
			}
		})
	}
}

func TestParseStatRefuses(t *testing.T) {
	whole := statLine("5", "x", "R", "22=1")
	tests := map[string]string{
		"nothing":              "",
		"newline":              "\n",
		"no newline":           whole[:len(whole)-1],
		"cut in the name":      whole[:4],
		"cut after the name":   whole[:5] + "\n",
		"cut after the state":  whole[:7] + "\n",
		"cut in the numbers":   whole[:40] + "\n",
		"no name":              strings.ReplaceAll(whole, "(x)", "x"),
		"no pid":               whole[1:],
		"pid too large":        statLine("4294967296", "x", "R"),
		"negative pid":         statLine("-5", "x", "R"),
		"state is no letter":   statLine("5", "x", "1"),
		"state of two letters": statLine("5", "x", "RS"),
		"parent too large":     statLine("5", "x", "R", "4=4294967296"),
		"negative parent":      statLine("5", "x", "R", "4=-1"),
		"no number":            statLine("5", "x", "R", "14=x"),
		"sign alone":           statLine("5", "x", "R", "24=-"),
		"65 bits":              statLine("5", "x", "R", "22=18446744073709551616"),
		"negative start":       statLine("5", "x", "R", "22=-1"),
		"last field goes on":   strings.TrimSuffix(whole, "\n") + "x\n",
		"name too long":        statLine("5", strings.Repeat("x", nameMax+1), "R"),
		"two blanks":           strings.Replace(whole, "R 0", "R  0", 1),
		"a field less":         strings.Replace(whole, " 0\n", "\n", 1),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			var st Stat
			if err := ParseStat([]byte(in), &st); err == nil {
				t.Errorf("ParseStat(%q) = %+v, want an error", in, st)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine("5", "a) R 1 \n\xff(b", "S", "4=42", "20=1")))
	f.Add([]byte(statLine("11", "kworker/R-a-b+a-b", "I", "9=32", "24=-7")))
	if b, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var st Stat
		if ParseStat(in, &st) != nil {
			return
		}
		if st.Comm[15] != 0 {
			t.Errorf("name %q has no NUL at its end", st.Comm)
		}
		// What was read must be what the line says, as a plain split sees it.
		end := strings.LastIndexByte(string(in), ')')
		fields := strings.Split(string(in[end+2:]), " ")
		if got, want := fmt.Sprint(st.StartTicks), strings.TrimLeft(fields[fieldStart-3], "-0"); got != want && want != "" {
			t.Errorf("start of %q = %s, want %s", in, got, want)
		}
	})
}

func BenchmarkParseStat(b *testing.B) {
	line := []byte(statLine("4194303", "some name", "S", "4=7", "9=4194560", "14=1100", "15=1200", "20=3", "22=123456", "23=21474836480"))
	var st Stat
	for b.Loop() {
		if err := ParseStat(line, &st); err != nil {
			b.Fatal(err)
		}
	}
}
