package serve

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/kpidd/kpidd/core/live"
)

func comm(name string) (c [16]byte) {
	copy(c[:], name)
	return c
}

func TestAppendRecord(t *testing.T) {
	task := live.Record{Seq: 7, TimeNs: 1000, StartTicks: 55, PID: 42, TID: 43, PPID: 1, Comm: comm("sh")}
	with := func(change func(r *live.Record)) live.Record {
		r := task
		change(&r)
		return r
	}
	gap := live.GapRecord(9, 12)
	gap.Seq = 3
	unknown := live.GapRecord(9, 0)
	for _, tt := range []struct {
		name string
		rec  live.Record
		want string
	}{
		{"fork", with(func(r *live.Record) { r.Type = live.RecFork }),
			`{"seq":7,"time_ns":1000,"type":"fork","pid":42,"tid":43,"start_ticks":55,"comm":"sh","ppid":1}`},
		{"exec", with(func(r *live.Record) { r.Type = live.RecExec }),
			`{"seq":7,"time_ns":1000,"type":"exec","pid":42,"tid":43,"start_ticks":55,"comm":"sh"}`},
		{"comm", with(func(r *live.Record) { r.Type = live.RecComm; r.Comm = comm("a \"b\"\n\\\xff") }),
			`{"seq":7,"time_ns":1000,"type":"comm","pid":42,"tid":43,"start_ticks":55,"comm":"a \"b\"\u000a\\\\\\xff"}`},
		{"full comm", with(func(r *live.Record) { r.Type = live.RecComm; r.Comm = comm("0123456789abcdef") }),
			`{"seq":7,"time_ns":1000,"type":"comm","pid":42,"tid":43,"start_ticks":55,"comm":"0123456789abcdef"}`},
		{"exit, not told", with(func(r *live.Record) { r.Type = live.RecExit; r.Code = 0x300 }),
			`{"seq":7,"time_ns":1000,"type":"exit","pid":42,"tid":43,"start_ticks":55,"comm":"sh","code":null,"signal":null}`},
		{"exit 3", with(func(r *live.Record) { r.Type = live.RecExit; r.Code = 0x300; r.Flags = live.HasCode }),
			`{"seq":7,"time_ns":1000,"type":"exit","pid":42,"tid":43,"start_ticks":55,"comm":"sh","code":3,"signal":null}`},
		{"killed, core dumped", with(func(r *live.Record) { r.Type = live.RecExit; r.Code = 0x8b; r.Flags = live.HasCode }),
			`{"seq":7,"time_ns":1000,"type":"exit","pid":42,"tid":43,"start_ticks":55,"comm":"sh","code":null,"signal":11}`},
		{"gap", gap, `{"seq":3,"time_ns":9,"type":"gap","lost":12}`},
		{"gap, unknown", unknown, `{"seq":0,"time_ns":9,"type":"gap","lost":null}`},
		{"resync", live.Record{Seq: 1, TimeNs: 2, Type: live.RecResync}, `{"seq":1,"time_ns":2,"type":"resync"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(appendRecord(nil, &tt.rec))
			if got != tt.want+"\n" {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !json.Valid([]byte(got)) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
}

func FuzzAppendRecord(f *testing.F) {
	for _, seed := range []string{"", "bash", "\xff\xfe", "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", "\\\\\\\\\"\"\"\"", "é漢\u2028"} {
		f.Add([]byte(seed), uint8(live.RecExit), uint8(0xff), uint16(0xffff))
	}
	f.Fuzz(func(t *testing.T, name []byte, recType, flags uint8, code uint16) {
		r := live.Record{
			Seq: math.MaxUint64, TimeNs: math.MaxUint64, StartTicks: math.MaxUint64,
			PID: math.MaxUint32, TID: math.MaxUint32, PPID: math.MaxUint32,
			Type: live.RecordType(recType%6 + 1), Flags: live.EventFlags(flags), Code: code, Comm: comm(string(name)),
		}
		line := appendRecord(nil, &r)
		if !json.Valid(line) {
			t.Errorf("not JSON: %q", line)
		}
		if len(line) > recordBytesMax {
			t.Errorf("%d bytes, want at most %d: %q", len(line), recordBytesMax, line)
		}
	})
}

var benchRecord = live.Record{
	Seq: 123456789, TimeNs: 98765432109876, StartTicks: 9876543, PID: 12345, TID: 12345, PPID: 1234,
	Type: live.RecFork, Comm: comm("build-worker"),
}

func TestAppendRecordAllocs(t *testing.T) {
	dst := make([]byte, 0, recordBytesMax)
	if got := testing.AllocsPerRun(1000, func() { dst = appendRecord(dst[:0], &benchRecord) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

//go:noinline
func encodeMany(dst []byte, n int) (total int) {
	for range n {
		total += len(appendRecord(dst[:0], &benchRecord))
	}
	return total
}

func BenchmarkAppendRecord(b *testing.B) {
	const batch = 1000
	dst := make([]byte, 0, recordBytesMax)
	for b.Loop() {
		b.SetBytes(int64(encodeMany(dst, batch)))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/record")
}
