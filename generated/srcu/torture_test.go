package srcu

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/arch/archtest"
)

// slowDomainDelay and bustedDomainDelay are called between the two halves of
// ReadLock: a reader that has read the index stays behind for grace periods.
func slowDomainDelay() {
	if rand.IntN(20) == 0 {
		runtime.Gosched()
	}
	if rand.IntN(500) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
}

func bustedDomainDelay() { slowDomainDelay() }

// handle is what the emitted readers have in common.
type handle interface {
	ReadLock() uint64
	ReadUnlock(index uint64)
	Unregister()
}

type reader[R handle] struct{ r R }

func (r reader[R]) Enter() uint64     { return r.r.ReadLock() }
func (r reader[R]) Exit(index uint64) { r.r.ReadUnlock(index) }
func (r reader[R]) Unregister()       { r.r.Unregister() }

func torture[R handle](d interface {
	Register(label string) R
	Synchronize(ctx context.Context) error
}, lean bool) *archtest.Torture {
	return &archtest.Torture{
		Register:    func(label string) archtest.Reader { return reader[R]{d.Register(label)} },
		Synchronize: d.Synchronize,
		Lean:        lean,
	}
}

func TestStressSRCU(t *testing.T) {
	archtest.SkipStoreBuffering(t)
	blocking := torture(NewDomain(), false)
	blocking.Inside = func(r *rand.Rand) {
		if r.IntN(1000) == 0 {
			time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
		}
	}
	for name, run := range map[string]*archtest.Torture{
		"lean":      torture(NewDomain(), true),
		"disturbed": torture(NewDomain(), false),
		"blocking":  blocking,
		"slow":      torture(NewSlowDomain(), false),
	} {
		t.Run(name, func(t *testing.T) {
			report, err := run.Run(archtest.StressTime())
			if err != nil {
				t.Error(err)
			}
			if report.Reads == 0 || report.Periods == 0 {
				t.Error("no read or no grace period: the check saw nothing")
			}
			t.Logf("%d reads, %d grace periods, ages %v", report.Reads, report.Periods, report.Ages)
		})
	}
}

// The same where the kernel has no membarrier(2).
func TestStressSRCUFenced(t *testing.T) {
	if !arch.LightStores {
		t.Skip("readers' stores are fences here")
	}
	archtest.WithoutMembarrier(t, "TestStressSRCU")
}

// A grace period that flips once misses the reader that counts late.
func TestStressSRCUCatchesBusted(t *testing.T) {
	archtest.MustCatch(t, func(limit time.Duration) bool {
		report, err := torture(NewBustedDomain(), false).Run(limit)
		t.Logf("%d reads, %d grace periods, ages %v: %v", report.Reads, report.Periods, report.Ages, err)
		return err != nil
	})
}
