package arch

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func load(p *uint64) uint64 { return atomic.LoadUint64(p) }

// seqVariant is a pair of copies for records of so many words, the sequence
// included.
type seqVariant struct {
	name  string
	words int
	read  func(dst, rec []uint64) bool
	write func(rec, src []uint64)
}

// seqVariants are the copies of this build beside the portable ones. Each must
// also read what the other writes.
func seqVariants() []seqVariant {
	var all []seqVariant
	for _, c := range []struct {
		bytes int
		read  func(dst, rec []uint64) bool
		write func(rec, src []uint64)
	}{
		{32, func(dst, rec []uint64) bool { return SeqRead32((*[3]uint64)(dst), (*[4]uint64)(rec)) },
			func(rec, src []uint64) { SeqWrite32((*[4]uint64)(rec), (*[3]uint64)(src)) }},
		{64, func(dst, rec []uint64) bool { return SeqRead64((*[7]uint64)(dst), (*[8]uint64)(rec)) },
			func(rec, src []uint64) { SeqWrite64((*[8]uint64)(rec), (*[7]uint64)(src)) }},
		{128, func(dst, rec []uint64) bool { return SeqRead128((*[15]uint64)(dst), (*[16]uint64)(rec)) },
			func(rec, src []uint64) { SeqWrite128((*[16]uint64)(rec), (*[15]uint64)(src)) }},
		{256, func(dst, rec []uint64) bool { return SeqRead256((*[31]uint64)(dst), (*[32]uint64)(rec)) },
			func(rec, src []uint64) { SeqWrite256((*[32]uint64)(rec), (*[31]uint64)(src)) }},
	} {
		add := func(name string, read func(dst, rec []uint64) bool, write func(rec, src []uint64)) {
			all = append(all, seqVariant{fmt.Sprintf("%d/%s", c.bytes, name), c.bytes / 8, read, write})
		}
		add("build", c.read, c.write)
		add("portable", seqRead, seqWrite)
		add("build reads portable", c.read, seqWrite)
		add("portable reads build", seqRead, c.write)
	}
	return all
}

// guarded returns n words with a canary on both sides, and a check of them.
func guarded(n int) (words []uint64, intact func() bool) {
	const canary = 0xdeadbeefcafef00d
	all := make([]uint64, n+2)
	all[0], all[n+1] = canary, canary
	return all[1 : n+1], func() bool { return all[0] == canary && all[n+1] == canary }
}

func TestSeqCopy(t *testing.T) {
	for _, v := range seqVariants() {
		t.Run(v.name, func(t *testing.T) {
			rec, recIntact := guarded(v.words)
			src, srcIntact := guarded(v.words - 1)
			dst, dstIntact := guarded(v.words - 1)
			if !v.read(dst, rec) {
				t.Error("a record of zeros: got false, want true")
			}
			for round := range uint64(5) {
				for i := range src {
					src[i] = round<<56 | uint64(i+1)*0x0101010101
				}
				v.write(rec, src)
				if want := 2 * (round + 1); rec[0] != want {
					t.Errorf("sequence after write %d: got %d, want %d", round, rec[0], want)
				}
				if !v.read(dst, rec) {
					t.Error("read after a write: got false, want true")
				}
				for i := range src {
					if dst[i] != src[i] {
						t.Errorf("round %d word %d: got %#x, want %#x", round, i, dst[i], src[i])
					}
				}
			}
			if !recIntact() || !srcIntact() || !dstIntact() {
				t.Error("a copy stored beyond its end")
			}
		})
	}
}

func TestSeqReadRefusesOdd(t *testing.T) {
	for _, v := range seqVariants() {
		for _, seq := range []uint64{1, 3, 1<<32 + 1, ^uint64(0)} {
			rec := make([]uint64, v.words)
			rec[0] = seq
			if v.read(make([]uint64, v.words-1), rec) {
				t.Errorf("%s: sequence %#x: got true, want false", v.name, seq)
			}
			if rec[0] != seq {
				t.Errorf("%s: a read changed the sequence from %#x to %#x", v.name, seq, rec[0])
			}
		}
	}
}

func TestSeqWriteTakesOverOdd(t *testing.T) {
	for _, v := range seqVariants() {
		rec := make([]uint64, v.words)
		rec[0] = 7
		v.write(rec, make([]uint64, v.words-1))
		if rec[0] != 8 {
			t.Errorf("%s: sequence after a write over 7: got %d, want 8", v.name, rec[0])
		}
	}
}

func TestStressSeqTorn(t *testing.T) {
	for _, v := range seqVariants() {
		t.Run(v.name, func(t *testing.T) {
			reads, err := seqTorn(v, stressTime())
			if err != nil {
				t.Error(err)
			}
			if reads == 0 {
				t.Error("no read succeeded: the check saw nothing")
			}
		})
	}
}

// A writer that never marks the record odd must be caught by the same check.
func TestStressSeqTornCatchesBusted(t *testing.T) {
	for _, v := range seqVariants() {
		v.write = func(rec, src []uint64) {
			for i, w := range src {
				atomic.StoreUint64(&rec[i+1], w)
				if i == len(src)/2 {
					runtime.Gosched()
				}
			}
			atomic.AddUint64(&rec[0], 2)
		}
		if _, err := seqTorn(v, 10*time.Second); err == nil {
			t.Errorf("%s: a writer without an odd sequence was not caught", v.name)
		}
	}
}

// seqTorn lets one writer store payloads of equal words, in rising order, while
// readers check that they get such payloads and never an older one than before.
func seqTorn(v seqVariant, limit time.Duration) (reads uint64, err error) {
	rec := make([]uint64, v.words)
	var stop atomic.Bool
	var total atomic.Uint64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			dst := make([]uint64, v.words-1)
			last, n := uint64(0), uint64(0)
			for !stop.Load() {
				if !v.read(dst, rec) {
					runtime.Gosched()
					continue
				}
				n++
				for i, w := range dst {
					if w != dst[0] || w < last {
						e := fmt.Errorf("word %d is %d beside %d, after a payload of %d", i, w, dst[0], last)
						failed.CompareAndSwap(nil, &e)
						stop.Store(true)
						break
					}
				}
				last = dst[0]
			}
			total.Add(n)
		})
	}
	src := make([]uint64, v.words-1)
	end := time.Now().Add(limit)
	for n := uint64(1); !stop.Load(); n++ {
		for i := range src {
			src[i] = n
		}
		v.write(rec, src)
		if n%64 == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				stop.Store(true)
			}
		}
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return total.Load(), *e
	}
	return total.Load(), nil
}

func stressTime() time.Duration {
	if testing.Short() {
		return 30 * time.Millisecond
	}
	return 300 * time.Millisecond
}

func TestSeqAllocs(t *testing.T) {
	var rec32, rec64, rec128, rec256 = new([4]uint64), new([8]uint64), new([16]uint64), new([32]uint64)
	var buf32, buf64, buf128, buf256 = new([3]uint64), new([7]uint64), new([15]uint64), new([31]uint64)
	if got := testing.AllocsPerRun(100, func() {
		SeqWrite32(rec32, buf32)
		SeqRead32(buf32, rec32)
		SeqWrite64(rec64, buf64)
		SeqRead64(buf64, rec64)
		SeqWrite128(rec128, buf128)
		SeqRead128(buf128, rec128)
		SeqWrite256(rec256, buf256)
		SeqRead256(buf256, rec256)
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func BenchmarkSeqRead(b *testing.B) {
	b.Run("bytes=32", func(b *testing.B) {
		var rec [4]uint64
		var dst [3]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqRead32(&dst, &rec)
			}
		})
	})
	b.Run("bytes=64", func(b *testing.B) {
		var rec [8]uint64
		var dst [7]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqRead64(&dst, &rec)
			}
		})
	})
	b.Run("bytes=128", func(b *testing.B) {
		var rec [16]uint64
		var dst [15]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqRead128(&dst, &rec)
			}
		})
	})
	b.Run("bytes=256", func(b *testing.B) {
		var rec [32]uint64
		var dst [31]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqRead256(&dst, &rec)
			}
		})
	})
}

func BenchmarkSeqWrite(b *testing.B) {
	b.Run("bytes=32", func(b *testing.B) {
		var rec [4]uint64
		var src [3]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqWrite32(&rec, &src)
			}
		})
	})
	b.Run("bytes=64", func(b *testing.B) {
		var rec [8]uint64
		var src [7]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqWrite64(&rec, &src)
			}
		})
	})
	b.Run("bytes=128", func(b *testing.B) {
		var rec [16]uint64
		var src [15]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqWrite128(&rec, &src)
			}
		})
	})
	b.Run("bytes=256", func(b *testing.B) {
		var rec [32]uint64
		var src [31]uint64
		bench(b, 1000, func(n int) {
			for range n {
				SeqWrite256(&rec, &src)
			}
		})
	})
}
