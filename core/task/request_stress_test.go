package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/internal/lab"
	"golang.org/x/sys/unix"
)

// throng is an engine that many goroutines ask at once.
type throng struct {
	stress
	e    *Engine
	kept []uint32
}

func newThrong(t *testing.T) *throng {
	g := &throng{e: newRequest(t)}
	for range stressKept {
		tid := mustClone(t, g.e, 1, 0)
		if err := g.e.Rename(tid, sealed(tid, 0)); err != nil {
			t.Fatal(err)
		}
		g.kept = append(g.kept, tid)
		processPair(g.e, 1)
	}
	return g
}

// life is a family: it is made by a child of the first process, does what families
// do, and ends.
func (g *throng) life() {
	try := func(what string, err error, may ...error) {
		if err != nil && !slices.ContainsFunc(may, func(m error) bool { return errors.Is(err, m) }) {
			g.fail(fmt.Errorf("%s: %w", what, err))
		}
	}
	for n := 0; !g.stop.Load(); n++ {
		flags := uint64(0)
		if n%16 == 0 {
			flags = unix.CLONE_NEWPID
		}
		top, err := g.e.Clone(1, &CloneArgs{Flags: flags})
		try("clone", err)
		thread, err := g.e.Clone(top, &CloneArgs{Flags: ThreadFlags})
		try("clone of a thread", err)
		child, err := g.e.Clone(thread, &CloneArgs{})
		try("clone by a thread", err)
		_, err = g.e.SetSID(child)
		try("setsid", err)
		orphan, err := g.e.Clone(child, &CloneArgs{})
		try("clone by a session's leader", err)
		try("setpgid", g.e.SetPGID(orphan, 0, 0))
		try("account", g.e.Account(thread, Usage{Switches: 1}))
		kept := g.kept[rand.IntN(len(g.kept))]
		try("rename", g.e.Rename(kept, sealed(kept, uint32(n))))
		switch n % 4 {
		case 0:
			try("exec by a thread", g.e.Exec(thread, comm("new")))
			try("exit", g.e.Exit(child, Exited(1)))
			_, err = g.e.Wait(top, -1, 0)
			try("wait", err)
		case 1:
			try("exit of a thread", g.e.Exit(thread, 0))
		case 2:
			try("exit of the leader", g.e.Exit(top, 0))
		case 3:
			try("ignore", g.e.IgnoreChildren(top, true))
		}
		try("exit of the group", g.e.ExitGroup(top, Signaled(9)))
		if _, ok := g.e.Task(orphan); ok { // it has gone with its namespace, or is the first one's
			try("exit of the orphan", g.e.ExitGroup(orphan, 0), unix.ESRCH)
		}
		g.e.ExitGroup(child, 0) // ESRCH if it has ended
		for {
			got, err := g.e.Wait(1, -1, unix.WNOHANG)
			try("wait of the first", err)
			if err != nil || got.PID == 0 {
				break
			}
		}
	}
}

// list checks M1.8: each kept process once, in order, resumed now and then.
func (g *throng) listKept() {
	var h table.Hot
	for !g.stop.Load() {
		kept, last := 0, uint32(0)
		for w := g.e.Namespace().Leaders(0); w.Next(&h); {
			if h.TID <= last || h.TGID != h.TID || h.State == stateDead {
				g.fail(fmt.Errorf("task %d of %d, state %q, came after %d", h.TID, h.TGID, h.State, last))
				return
			}
			last = h.TID
			if slices.Contains(g.kept, h.TID) {
				if err := checkSeal(&h); err != nil {
					g.fail(err)
					return
				}
				kept++
			}
			if rand.IntN(8) == 0 {
				w = g.e.Namespace().Leaders(w.Number() + 1)
			}
		}
		if kept != len(g.kept) {
			g.fail(fmt.Errorf("M1.8: %d kept processes were listed, want each of %d once", kept, len(g.kept)))
			return
		}
		g.lists.Add(1)
	}
}

// hold checks M5.6: what is found in a section is the same life to its end.
func (g *throng) hold() {
	r := g.e.Register("stress")
	defer r.Unregister()
	var h table.Hot
	var i Info
	var line [16]uint32
	for nr := uint32(1); !g.stop.Load(); nr = h.TID + 1 {
		if !g.e.Namespace().NextLeader(nr, &h) {
			h.TID = 0
			continue
		}
		if g.e.Info(h.TID, &i) && (i.TID != h.TID || i.Level > 1 || i.EUID != 0) {
			g.fail(fmt.Errorf("info of task %d: %+v", h.TID, i))
		}
		g.e.Ancestors(h.TID, line[:0])
		r.Enter()
		if ref, ok := r.Find(g.e.Namespace(), h.TID); ok {
			runtime.Gosched()
			var again table.Hot
			if !r.Get(ref, &again) || again.TGID != h.TID && again.Gen == h.Gen {
				g.fail(fmt.Errorf("M5.6: task %d, generation %d, became %+v inside a section", h.TID, ref.Gen, again))
			}
		}
		r.Exit()
	}
}

func TestStressRequest(t *testing.T) {
	for _, how := range []lab.Release{lab.Deferred, lab.UnderLock} {
		t.Run(how.String(), func(t *testing.T) {
			g := newThrong(t)
			g.e.SetBaseline(how)
			g.e.SetHooks(Hooks{Sink: new(hashSink).sink})
			limit := 600 * time.Millisecond
			if testing.Short() {
				limit = 80 * time.Millisecond
			}
			if err := g.run(limit, g.life, g.life, g.life, g.life, g.listKept, g.listKept, g.hold); err != nil {
				t.Fatal(err)
			}
			if g.lists.Load() == 0 {
				t.Error("no listing was made: the check saw nothing")
			}
			if err := g.e.Pids().Settle(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkInvariants(t, g.e, between)
			checkSlotsUsed(t, g.e, int(g.e.Namespace().Users()))
		})
	}
}

// Broken releases that the same checks must catch: a slot that is reused beside a
// reader, and a number that is freed while its process lives.
func TestStressRequestCatchesBusted(t *testing.T) {
	for name, write := range map[string]func(g *throng){
		"slots reused beside readers": func(g *throng) {
			child, err := g.e.Clone(1, &CloneArgs{})
			if err != nil {
				g.fail(err)
				return
			}
			runtime.Gosched()
			p := leftover{now: true}
			g.e.lock()
			slot := g.e.find(child)
			g.e.exitLocked(slot, &p)
			g.e.releaseLocked(slot, &p)
			g.e.unlockAnd(&p)
		},
		"a number freed before its task is detached": func(g *throng) {
			ref, _ := g.e.Namespace().Ref(g.kept[7])
			g.e.lock()
			for _, r := range []pid.Role{pid.TGID, pid.PID} {
				g.e.pids.Detach(ref.Slot, r)
			}
			h, _ := g.e.Task(g.kept[7])
			g.e.pids.FreeNow([]uint32{ref.Slot})
			runtime.Gosched()
			again, err := g.e.pids.NewSlot()
			if err == nil && again.Slot == ref.Slot {
				h.Gen = again.Gen
				g.e.tab.Put(again.Slot, &h)
				err = g.e.pids.Insert(again, h.TID, true)
				g.e.recs.at(again.Slot).gen = again.Gen
				g.e.pids.Attach(again.Slot, pid.PID)
				g.e.pids.Attach(again.Slot, pid.TGID)
			}
			g.e.unlock()
			if err != nil {
				g.fail(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newThrong(t)
			err := g.run(20*time.Second, g.listKept, g.listKept, g.hold, g.hold, func() {
				for !g.stop.Load() {
					write(g)
				}
			})
			if err == nil {
				t.Error("the broken writer was not caught")
			} else {
				t.Log(err)
			}
		})
	}
}
