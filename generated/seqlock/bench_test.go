package seqlock

import "testing"

const batch = 1000

// perOp reports the time of one operation out of a batch.
func perOp(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/op")
}

//go:noinline
func read32(r *Rec32, dst *[3]uint64) (sum uint64) {
	for range batch {
		if r.Read(dst) {
			sum += dst[2]
		}
	}
	return sum
}

//go:noinline
func read64(r *Rec64, dst *[7]uint64) (sum uint64) {
	for range batch {
		if r.Read(dst) {
			sum += dst[3]
		}
	}
	return sum
}

//go:noinline
func read128(r *Rec128, dst *[15]uint64) (sum uint64) {
	for range batch {
		if r.Read(dst) {
			sum += dst[3]
		}
	}
	return sum
}

//go:noinline
func read256(r *Rec256, dst *[31]uint64) (sum uint64) {
	for range batch {
		if r.Read(dst) {
			sum += dst[3]
		}
	}
	return sum
}

//go:noinline
func write32(r *Rec32, src *[3]uint64) {
	for range batch {
		r.Write(src)
	}
}

//go:noinline
func write64(r *Rec64, src *[7]uint64) {
	for range batch {
		r.Write(src)
	}
}

//go:noinline
func write128(r *Rec128, src *[15]uint64) {
	for range batch {
		r.Write(src)
	}
}

//go:noinline
func write256(r *Rec256, src *[31]uint64) {
	for range batch {
		r.Write(src)
	}
}

func BenchmarkRead(b *testing.B) {
	b.Run("bytes=32", func(b *testing.B) {
		var r Rec32
		var dst [3]uint64
		for b.Loop() {
			read32(&r, &dst)
		}
		perOp(b)
	})
	b.Run("bytes=64", func(b *testing.B) {
		var r Rec64
		var dst [7]uint64
		for b.Loop() {
			read64(&r, &dst)
		}
		perOp(b)
	})
	b.Run("bytes=128", func(b *testing.B) {
		var r Rec128
		var dst [15]uint64
		for b.Loop() {
			read128(&r, &dst)
		}
		perOp(b)
	})
	b.Run("bytes=256", func(b *testing.B) {
		var r Rec256
		var dst [31]uint64
		for b.Loop() {
			read256(&r, &dst)
		}
		perOp(b)
	})
}

func BenchmarkWrite(b *testing.B) {
	b.Run("bytes=32", func(b *testing.B) {
		var r Rec32
		var src [3]uint64
		for b.Loop() {
			write32(&r, &src)
		}
		perOp(b)
	})
	b.Run("bytes=64", func(b *testing.B) {
		var r Rec64
		var src [7]uint64
		for b.Loop() {
			write64(&r, &src)
		}
		perOp(b)
	})
	b.Run("bytes=128", func(b *testing.B) {
		var r Rec128
		var src [15]uint64
		for b.Loop() {
			write128(&r, &src)
		}
		perOp(b)
	})
	b.Run("bytes=256", func(b *testing.B) {
		var r Rec256
		var src [31]uint64
		for b.Loop() {
			write256(&r, &src)
		}
		perOp(b)
	})
}
