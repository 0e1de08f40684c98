package epoch

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/kpidd/kpidd/arch"
	"github.com/kpidd/kpidd/arch/archtest"
)

// handle is what the emitted readers have in common.
type handle interface {
	Enter()
	Exit()
	Unregister()
}

type reader[R handle] struct{ r R }

func (r reader[R]) Enter() uint64 { r.r.Enter(); return 0 }
func (r reader[R]) Exit(uint64)   { r.r.Exit() }
func (r reader[R]) Unregister()   { r.r.Unregister() }

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

func TestMain(m *testing.M) { archtest.Main(m, arch.DisableMembarrier) }

func TestStressEpoch(t *testing.T) {
	archtest.SkipStoreBuffering(t)
	slowDomainDelay = func() {
		if rand.IntN(100) == 0 {
			runtime.Gosched()
		}
	}
	for name, run := range map[string]*archtest.Torture{
		"lean":      torture(NewDomain(), true),
		"disturbed": torture(NewDomain(), false),
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
func TestStressEpochFenced(t *testing.T) {
	if !arch.LightStores {
		t.Skip("readers' stores are fences here")
	}
	archtest.WithoutMembarrier(t, "TestStressEpoch")
}

// Readers whose stores are plain, and a grace period without membarrier(2).
func TestStressEpochCatchesNoBarrier(t *testing.T) {
	if !arch.LightStores || !arch.HasMembarrier() || runtime.NumCPU() < 2 || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("readers' stores are fences here, or there is one processor only")
	}
	archtest.MustCatch(t, func(limit time.Duration) bool {
		report, err := torture(NewNoBarrierDomain(), true).Run(limit)
		t.Logf("%d reads, %d grace periods, ages %v: %v", report.Reads, report.Periods, report.Ages, err)
		return err != nil
	})
}

// A grace period that does not wait for the readers of the last epoch.
func TestStressEpochCatchesEarly(t *testing.T) {
	archtest.MustCatch(t, func(limit time.Duration) bool {
		report, err := torture(NewEarlyDomain(), false).Run(limit)
		t.Logf("%d reads, %d grace periods, ages %v: %v", report.Reads, report.Periods, report.Ages, err)
		return err != nil
	})
}
