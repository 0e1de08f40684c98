package structures

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/generated/seqcount"
	"github.com/kpidd/kpidd/generated/seqlock"
	gvisor "gvisor.dev/gvisor/pkg/sync"
)

// paced is how many looks at a word lie between two writes of a writer that is not
// at full speed, which makes about 0.4 us.
const paced = 1400

// cell is a record that one writer replaces and readers copy. Read returns how
// many copies were whole.
type cell struct {
	name  string
	read  func(ops int) (whole int)
	write func(ops int)
}

// kpidd's records. The loops are written out for each size, since a method called
// through a type parameter is called through a dictionary.

func rec32() cell {
	r, p := new(seqlock.Rec32), new([3]uint64)
	return cell{"kpidd.Rec32", func(ops int) int { return readRec32(r, ops) }, func(ops int) {
		for range ops {
			r.Write(p)
		}
	}}
}

//go:noinline
func readRec32(r *seqlock.Rec32, ops int) (whole int) {
	var dst [3]uint64
	for range ops {
		if r.Read(&dst) {
			whole++
		}
	}
	return whole
}

func rec64() cell {
	r, p := new(seqlock.Rec64), new([7]uint64)
	return cell{"kpidd.Rec64", func(ops int) int { return readRec64(r, ops) }, func(ops int) {
		for range ops {
			r.Write(p)
		}
	}}
}

//go:noinline
func readRec64(r *seqlock.Rec64, ops int) (whole int) {
	var dst [7]uint64
	for range ops {
		if r.Read(&dst) {
			whole++
		}
	}
	return whole
}

func rec128() cell {
	r, p := new(seqlock.Rec128), new([15]uint64)
	return cell{"kpidd.Rec128", func(ops int) int { return readRec128(r, ops) }, func(ops int) {
		for range ops {
			r.Write(p)
		}
	}}
}

//go:noinline
func readRec128(r *seqlock.Rec128, ops int) (whole int) {
	var dst [15]uint64
	for range ops {
		if r.Read(&dst) {
			whole++
		}
	}
	return whole
}

func rec256() cell {
	r, p := new(seqlock.Rec256), new([31]uint64)
	return cell{"kpidd.Rec256", func(ops int) int { return readRec256(r, ops) }, func(ops int) {
		for range ops {
			r.Write(p)
		}
	}}
}

//go:noinline
func readRec256(r *seqlock.Rec256, ops int) (whole int) {
	var dst [31]uint64
	for range ops {
		if r.Read(&dst) {
			whole++
		}
	}
	return whole
}

// genericRec is a record in generic Go: words of a number that the code does not
// know, copied one by one.
type genericRec struct {
	seq atomic.Uint64
	w   []uint64
}

//go:noinline
func (r *genericRec) copies(dst []uint64, ops int) (whole int) {
	for range ops {
		for range 321 { // as often as kpidd's at most
			seq := r.seq.Load()
			for i := range dst {
				dst[i] = atomic.LoadUint64(&r.w[i])
			}
			if seq&1 == 0 && r.seq.Load() == seq {
				whole++
				break
			}
			arch.Pause()
		}
	}
	return whole
}

func genericCell(payload int) cell {
	r, src, dst := &genericRec{w: make([]uint64, payload)}, make([]uint64, payload), make([]uint64, payload)
	return cell{"generic", func(ops int) int { return r.copies(dst, ops) }, func(ops int) {
		for range ops {
			r.seq.Add(1)
			for i, x := range src {
				atomic.StoreUint64(&r.w[i], x)
			}
			r.seq.Add(1)
		}
	}}
}

// countCell is words under kpidd's sequence count, copied one by one.
func countCell(payload int) cell {
	r, src, dst := new(seqcount.Count), make([]uint64, payload), make([]uint64, payload)
	w := make([]uint64, payload)
	return cell{"kpidd.Count", func(ops int) int { return readCount(r, w, dst, ops) }, func(ops int) {
		for range ops {
			r.Begin()
			for i, x := range src {
				atomic.StoreUint64(&w[i], x)
			}
			r.End()
		}
	}}
}

//go:noinline
func readCount(r *seqcount.Count, w, dst []uint64, ops int) (whole int) {
	for range ops {
		for range 321 {
			seq := r.ReadBegin()
			for i := range dst {
				dst[i] = atomic.LoadUint64(&w[i])
			}
			if !r.ReadRetry(seq) {
				whole++
				break
			}
		}
	}
	return whole
}

// gvisorCell is gVisor's sequence count around a plain copy, which the race
// detector would object to.
func gvisorCell[P any]() cell {
	var r struct {
		seq  gvisor.SeqCount
		data P
	}
	var src P
	return cell{"gVisor.SeqCount", func(ops int) int { return readGvisor(&r.seq, &r.data, ops) }, func(ops int) {
		for range ops {
			r.seq.BeginWrite()
			r.data = src
			r.seq.EndWrite()
		}
	}}
}

//go:noinline
func readGvisor[P any](seq *gvisor.SeqCount, data *P, ops int) (whole int) {
	var dst P
	for range ops {
		for range 321 {
			began := seq.BeginRead()
			dst = *data
			if seq.ReadOk(began) {
				whole++
				break
			}
		}
	}
	runtime.KeepAlive(&dst)
	return whole
}

// lockedCell is a plain copy under a lock.
func lockedCell[P any]() cell {
	var mu sync.RWMutex
	var data, src P
	return cell{"sync.RWMutex", func(ops int) int { return readLocked(&mu, &data, ops) }, func(ops int) {
		for range ops {
			mu.Lock()
			data = src
			mu.Unlock()
		}
	}}
}

//go:noinline
func readLocked[P any](mu *sync.RWMutex, data *P, ops int) (whole int) {
	var dst P
	for range ops {
		mu.RLock()
		dst = *data
		mu.RUnlock()
		whole++
	}
	runtime.KeepAlive(&dst)
	return whole
}

var cells = []struct {
	bytes int
	makes []func() cell
}{
	{32, []func() cell{rec32, gvisorCell[[3]uint64], lockedCell[[3]uint64]}},
	{64, []func() cell{rec64, gvisorCell[[7]uint64], lockedCell[[7]uint64]}},
	{128, []func() cell{rec128, gvisorCell[[15]uint64], lockedCell[[15]uint64]}},
	{256, []func() cell{rec256, gvisorCell[[31]uint64], lockedCell[[31]uint64]}},
}

// seqlockRows compare copies and writes of records, and copies beside a writer.
func seqlockRows() (rows []row) {
	for _, size := range cells {
		payload := size.bytes/8 - 1
		makes := append(size.makes,
			func() cell { return genericCell(payload) },
			func() cell { return countCell(payload) })
		read := row{name: fmt.Sprintf("read/bytes=%d", size.bytes), threads: 1, ops: 1000}
		write := row{name: fmt.Sprintf("write/bytes=%d", size.bytes), threads: 1, ops: 1000}
		slow := row{name: read.name + "/writer=0.4us", threads: 1, ops: 1000}
		full := row{name: read.name + "/writer=full", threads: 1, ops: 100}
		for _, c := range makes {
			name := c().name
			read.contenders = append(read.contenders, contender{name: name, setUp: func() bench { return c().reads() }})
			write.contenders = append(write.contenders, contender{name: name, setUp: func() bench { return c().writes() }})
			slow.contenders = append(slow.contenders, contender{name: name, setUp: func() bench { return c().readsBeside(1, paced) }})
			full.contenders = append(full.contenders, contender{name: name, setUp: func() bench { return c().readsBeside(16, 0) }})
		}
		read.contenders = append(read.contenders, ck.contender("sequence", "seqread", fmt.Sprint(size.bytes)))
		write.contenders = append(write.contenders, ck.contender("sequence", "seqwrite", fmt.Sprint(size.bytes)))
		rows = append(rows, read, write)
		if size.bytes == 64 {
			rows = append(rows, slow, full)
		}
	}
	return rows
}

func (c cell) reads() bench {
	return bench{loop: func(_, ops int, _ uint64) int { return c.read(ops) }}
}

func (c cell) writes() bench {
	return bench{loop: func(_, ops int, _ uint64) int { c.write(ops); return ops }}
}

// readsBeside reads beside a writer that writes so often, then looks at a word so
// often.
func (c cell) readsBeside(writes, looks int) bench {
	b := c.reads()
	b.mayFail = true
	var word atomic.Uint64
	b.beside = func(uint64) {
		c.write(writes)
		for range looks {
			word.Load()
		}
	}
	return b
}

func BenchmarkSeqlock(b *testing.B) { benchmark(b, seqlockRows()) }
