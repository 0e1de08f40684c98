package netlink

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kpidd/kpidd/core/live"
)

// lossStep is a datagram (cpu, seq, time), an ENOBUFS or an empty queue.
type lossStep struct {
	what   string // "", "enobufs", "dry"
	cpu    uint32
	seq    uint32
	timeNs uint64
}

// run feeds steps to a fresh detector and returns the sizes told, each with
// the index of the step at which it was told.
func run(steps []lossStep) (sizes []uint64, at []int) {
	l := new(losses)
	for i, s := range steps {
		var lost live.Event
		switch s.what {
		case "enobufs":
			l.overrun(s.timeNs)
		case "dry":
			if l.dry(s.timeNs, &lost) {
				sizes, at = append(sizes, lost.Lost), append(at, i)
			}
		default:
			m := message{cpu: s.cpu, seq: s.seq, event: live.Event{TimeNs: s.timeNs}}
			for l.before(&m, &lost) {
				sizes, at = append(sizes, lost.Lost), append(at, i)
			}
			l.seen(&m)
		}
	}
	return sizes, at
}

func TestLosses(t *testing.T) {
	tests := []struct {
		name  string
		steps []lossStep
		sizes []uint64
		at    []int
	}{
		{"none", []lossStep{{"", 0, 5, 1}, {"", 1, 900, 2}, {"", 0, 6, 3}, {"", 1, 901, 4}, {"dry", 0, 0, 5}}, nil, nil},
		{"none across the wrap", []lossStep{{"", 0, 1<<32 - 1, 1}, {"", 0, 0, 2}}, nil, nil},
		{"gap without overrun", []lossStep{{"", 0, 5, 1}, {"", 0, 9, 2}, {"", 0, 10, 3}}, []uint64{3}, []int{1}},
		{"gap across the wrap", []lossStep{{"", 0, 1<<32 - 2, 1}, {"", 0, 1, 2}, {"", 0, 2, 3}}, []uint64{2}, []int{1}},
		{"number that lies behind", []lossStep{{"", 0, 5, 1}, {"", 0, 4, 2}, {"", 0, 5, 3}}, []uint64{0}, []int{1}},
		{"overrun told where the queue is dry, then counted per CPU",
			[]lossStep{{"", 0, 5, 1}, {"", 1, 7, 1}, {"enobufs", 0, 0, 10}, {"", 0, 6, 2}, {"dry", 0, 0, 11}, {"", 0, 9, 12}, {"", 1, 12, 13}, {"dry", 0, 0, 14}},
			[]uint64{0, 2, 4}, []int{4, 5, 6}},
		{"overrun told with its number where the first newer datagram shows it",
			[]lossStep{{"", 0, 5, 1}, {"enobufs", 0, 0, 10}, {"", 0, 6, 2}, {"", 0, 9, 12}, {"dry", 0, 0, 14}},
			[]uint64{2}, []int{3}},
		{"overrun told before the first newer datagram though its CPU lost nothing",
			[]lossStep{{"", 0, 5, 1}, {"", 1, 5, 1}, {"enobufs", 0, 0, 10}, {"", 1, 6, 12}, {"", 0, 9, 13}, {"dry", 0, 0, 14}},
			[]uint64{0, 3}, []int{3, 4}},
		{"gap of an earlier overrun does not hide a later one",
			[]lossStep{{"", 0, 5, 1}, {"enobufs", 0, 0, 10}, {"dry", 0, 0, 11}, {"enobufs", 0, 0, 20}, {"", 0, 9, 12}, {"dry", 0, 0, 21}, {"", 0, 15, 22}},
			[]uint64{0, 3, 0, 5}, []int{2, 4, 5, 6}},
		{"a CPU never heard has no number", []lossStep{{"enobufs", 0, 0, 10}, {"", 3, 77, 11}, {"", 3, 78, 12}}, []uint64{0}, []int{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sizes, at := run(tt.steps)
			if !slices.Equal(sizes, tt.sizes) || !slices.Equal(at, tt.at) {
				t.Errorf("losses told %v at steps %v, want %v at %v", sizes, at, tt.sizes, tt.at)
			}
		})
	}
}

// kernelModel numbers datagrams per CPU, and drops them once its bounded queue
// is full until that has run empty.
type kernelModel struct {
	queue     []queued
	seqs      [3]uint32
	congested bool
	enobufs   bool
	dropped   uint64
}

type queued struct {
	message
	droppedBefore uint64
}

func (k *kernelModel) send(cpu uint32, nowNs uint64) {
	const queueMax = 20
	m := message{cpu: cpu, seq: k.seqs[cpu], event: live.Event{TimeNs: nowNs}}
	k.seqs[cpu]++
	if k.congested || len(k.queue) == queueMax {
		k.dropped++
		k.enobufs = k.enobufs || !k.congested
		k.congested = true
		return
	}
	k.queue = append(k.queue, queued{m, k.dropped})
}

// TestModelLosses: the numbers told must add up to what was dropped, and
// whenever the queue is found dry every drop must have been told somehow.
func TestModelLosses(t *testing.T) {
	const steps = 20000
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		k, l := new(kernelModel), new(losses)
		var now, counted, toldOf uint64 // toldOf: the first so many drops were told
		receive := func() {
			var lost live.Event
			switch {
			case k.enobufs:
				k.enobufs = false
				l.overrun(now)
			case len(k.queue) == 0:
				k.congested = false
				if l.dry(now, &lost) {
					toldOf = k.dropped
				}
				if toldOf != k.dropped {
					t.Fatalf("seed %d: at %d the queue is dry, and of %d drops only %d were told", seed, now, k.dropped, toldOf)
				}
			default:
				m := k.queue[0]
				k.queue = k.queue[1:]
				k.congested = k.congested && len(k.queue) > 0
				for l.before(&m.message, &lost) {
					counted += lost.Lost
					toldOf = m.droppedBefore
				}
				l.seen(&m.message)
			}
		}
		sendOnAll := func() {
			for cpu := range uint32(len(k.seqs)) {
				now++
				k.send(cpu, now)
			}
		}
		drain := func() {
			for len(k.queue) > 0 || k.enobufs {
				now++
				receive()
			}
		}
		sendOnAll() // each CPU is heard before the first loss
		for range steps {
			if now++; rng.IntN(1000) < 470 {
				receive()
			} else {
				k.send(rng.Uint32N(uint32(len(k.seqs))), now)
			}
		}
		drain()
		sendOnAll() // and after the last
		drain()
		if k.dropped == 0 || counted != k.dropped {
			t.Errorf("seed %d: losses counted = %d, want %d (not 0)", seed, counted, k.dropped)
		}
	}
}
