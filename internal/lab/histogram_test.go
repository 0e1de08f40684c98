package lab

import "testing"

func TestHistogram(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.99); got != 0 {
		t.Errorf("of nothing: got %d, want 0", got)
	}
	for ns := uint64(1); ns <= 1000; ns++ {
		h.Add(ns)
	}
	if got := h.N(); got != 1000 {
		t.Errorf("counted: got %d, want 1000", got)
	}
	for _, c := range []struct {
		q    float64
		want uint64
	}{{0.5, 500}, {0.99, 990}, {1, 1000}, {0.001, 1}} {
		if got := h.Quantile(c.q); got < c.want || got > c.want+c.want/4+1 {
			t.Errorf("quantile %v: got %d, want %d to a quarter more", c.q, got, c.want)
		}
	}
}

// Each bucket ends where the next begins.
func TestHistogramBuckets(t *testing.T) {
	for i := range histogramBuckets - 8 {
		end := bucketEnd(i)
		if bucketOf(end) != i || bucketOf(end+1) != i+1 {
			t.Errorf("bucket %d ends at %d, which is in bucket %d; %d is in %d", i, end, bucketOf(end), end+1, bucketOf(end+1))
		}
	}
	if got := bucketOf(^uint64(0)); got >= histogramBuckets {
		t.Errorf("the largest time is in bucket %d of %d", got, histogramBuckets)
	}
}
