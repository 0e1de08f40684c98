package perf

import (
	"slices"
	"testing"
)

func TestParseCPUList(t *testing.T) {
	tests := []struct {
		in   string
		want []int // nil: an error
	}{
		{"0\n", []int{0}},
		{"0-1\n", []int{0, 1}},
		{"0-2,4,6-7\n", []int{0, 1, 2, 4, 6, 7}},
		{"63", []int{63}},
		{"", nil},
		{"\n", nil},
		{"0-", nil},
		{"-1", nil},
		{"3-1", nil},
		{"2,1", nil},
		{"0-3,2", nil},
		{"1,1", nil},
		{"a", nil},
		{"0,,1", nil},
		{"0-99999999", nil},
		{"0 1", nil},
	}
	for _, tt := range tests {
		got, err := parseCPUList(tt.in)
		if (err != nil) != (tt.want == nil) || !slices.Equal(got, tt.want) {
			t.Errorf("parseCPUList(%q) = %v, %v; want %v", tt.in, got, err, tt.want)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-2,4\n")
	f.Add("0-8190")
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := parseCPUList(s)
		if err == nil && (len(cpus) == 0 || len(cpus) > ringsMax || !slices.IsSorted(cpus)) {
			t.Errorf("parseCPUList(%q) = %v without an error", s, cpus)
		}
	})
}

func TestIsCPUEvent(t *testing.T) {
	tests := []struct {
		msg  string
		want bool
	}{
		{"offline@/devices/system/cpu/cpu1\x00ACTION=offline\x00SUBSYSTEM=cpu\x00", true},
		{"online@/devices/system/cpu/cpu12\x00ACTION=online\x00", true},
		{"online@/devices/system/cpu/cpu12", true},
		{"change@/devices/system/cpu/cpu1\x00", false},
		{"online@/devices/system/memory/memory3\x00", false},
		{"add@/devices/virtual/net/veth0\x00", false},
		{"libudev\x00\xfe\xed\xca\xfe", false},
		{"online", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := isCPUEvent([]byte(tt.msg)); got != tt.want {
			t.Errorf("isCPUEvent(%q) = %t, want %t", tt.msg, got, tt.want)
		}
	}
}
