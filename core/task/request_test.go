package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// model asks an engine and a naive kernel for the same, and compares what they
// answer and what they then show.
type model struct {
	testing.TB
	e     *Engine
	k     *naive
	ns    map[*naiveNS]*pid.Namespace
	bytes []byte
	tids  []uint32 // that were ever given
	what  string
}

func newModel(t testing.TB, w *table.Writer, b []byte) *model {
	m := &model{TB: t, e: New(w, userHz), k: newNaive(), bytes: b, ns: map[*naiveNS]*pid.Namespace{}}
	tid, err := m.e.Start(comm("init"))
	if err != nil || tid != 1 {
		t.Fatalf("start: got task %d, %v; want 1", tid, err)
	}
	m.ns[m.k.root] = m.e.Namespace()
	m.tids = []uint32{1}
	return m
}

func (m *model) next() uint32 {
	if len(m.bytes) == 0 {
		return 0
	}
	b := m.bytes[0]
	m.bytes = m.bytes[1:]
	return uint32(b)
}

// pick is a task of the last few that were made, seldom one of long ago, nobody, or
// the first.
func (m *model) pick() uint32 {
	b := int(m.next())
	switch {
	case b >= 250:
		return uint32(b) * 3
	case b >= 200 || len(m.tids) < 2:
		return m.tids[b%len(m.tids)]
	}
	return m.tids[len(m.tids)-1-b%min(len(m.tids), 8)]
}

func (m *model) same(got, want error) {
	m.Helper()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		m.Fatalf("%s: got error %v, want %v", m.what, got, want)
	}
}

func (m *model) step() {
	tid, op := m.pick(), m.next()
	t, able := m.k.able(tid)
	switch op % 20 {
	case 0, 1, 2, 3:
		m.clone(tid, 0)
	case 4, 5, 6:
		m.clone(tid, ThreadFlags)
	case 7:
		m.clone(tid, []uint64{unix.CLONE_PARENT, unix.CLONE_VFORK, unix.CLONE_NEWPID, ThreadFlags | unix.CLONE_NEWPID}[m.next()%4])
	case 8, 9:
		m.what = fmt.Sprintf("exit of %d status %d", tid, op)
		k := m.k.find(tid)
		if k != nil && !k.exited && !k.leader.zapping {
			k.status = Exited(uint8(op))
			if k.leader.exited && len(k.leader.threads) == 1 {
				k.leader.status = k.status // the last one's is the process's
			}
			m.k.exit(k)
			m.same(m.e.Exit(tid, Exited(uint8(op))), nil)
		} else {
			m.same(m.e.Exit(tid, 0), unix.ESRCH)
		}
	case 10:
		m.what = fmt.Sprintf("exit of the group of %d", tid)
		if k := m.k.find(tid); k != nil && !k.leader.zombie && !k.leader.zapping && m.next()%4 != 0 {
			m.k.exitGroup(k.leader, Signaled(9))
			m.same(m.e.ExitGroup(tid, Signaled(9)), nil)
		}
	case 11:
		m.what = fmt.Sprintf("exec by %d", tid)
		if able == nil {
			m.k.exec(t)
		}
		m.same(m.e.Exec(tid, comm("x")), able)
	case 12, 13, 14:
		m.wait(tid, t, able)
	case 15:
		m.what = fmt.Sprintf("setsid by %d", tid)
		if able == nil {
			able = m.k.setsid(t)
		}
		_, err := m.e.SetSID(tid)
		m.same(err, able)
	case 16:
		nr, pgid := m.number(), m.number()
		m.what = fmt.Sprintf("setpgid(%d, %d) by %d", nr, pgid, tid)
		if able == nil {
			able = m.k.setpgid(t, nr, pgid)
		}
		m.same(m.e.SetPGID(tid, nr, pgid), able)
	case 17:
		m.flags(tid, t, able)
	case 18:
		m.unshare(tid)
	case 19:
		m.what = fmt.Sprintf("account for %d", tid)
		if k := m.k.find(tid); k != nil {
			k.usage += uint64(op)
			m.same(m.e.Account(tid, Usage{Switches: uint64(op)}), nil)
		}
	}
	m.k.prune()
	if err := m.e.Pids().Settle(context.Background()); err != nil {
		m.Fatal(err)
	}
}

func (m *model) number() uint32 {
	if b := m.next(); b < 200 {
		return m.pick()
	} else {
		return b % 4
	}
}

func (m *model) clone(tid uint32, flags uint64) {
	var want []uint32
	if b := m.next(); b >= 235 {
		for range b % 3 {
			want = append(want, m.next()%64)
		}
	}
	m.what = fmt.Sprintf("clone by %d, flags %#x, numbers %v", tid, flags, want)
	var wantErr error
	wantTID := uint32(0)
	if t := m.k.find(tid); t != nil && t.obj.ns.level > 3 && flags&unix.CLONE_NEWPID != 0 {
		return
	}
	wantTID, wantErr = m.k.clone(tid, flags, want)
	got, err := m.e.Clone(tid, &CloneArgs{Flags: flags, SetTID: want})
	m.same(err, wantErr)
	if got != wantTID {
		m.Fatalf("%s: got task %d, want %d", m.what, got, wantTID)
	}
	if err == nil {
		m.tids = append(m.tids, got)
		if ns := m.k.find(got).obj.ns; m.ns[ns] == nil {
			m.ns[ns] = m.e.Pids().NamespaceOf(m.e.Namespace().Find(got))
		}
	}
}

func (m *model) wait(tid uint32, t *naiveTask, able error) {
	id := int32(-1)
	switch b := m.next(); {
	case b < 60:
		id = int32(m.number())
	case b < 90:
		id = -int32(m.number())
	}
	options := unix.WNOHANG
	if m.next()%4 == 0 {
		options |= unix.WNOWAIT
	}
	m.what = fmt.Sprintf("wait for %d by %d", id, tid)
	got, err := m.e.Wait(tid, id, options)
	if able != nil {
		m.same(err, able)
		return
	}
	child, wantErr := m.k.wait(t, id, options)
	m.same(err, wantErr)
	var want Waited
	if child != nil {
		want = Waited{PID: child.obj.in(t.obj.ns), TGID: child.obj.root(), Status: child.status, Usage: Usage{Switches: child.usage}}
	}
	if got != want {
		m.Fatalf("%s: got %+v, want %+v", m.what, got, want)
	}
}

func (m *model) flags(tid uint32, t *naiveTask, able error) {
	b := m.next()
	on := b&1 != 0
	m.what = fmt.Sprintf("flag %d of %d", b/2%4, tid)
	switch b / 2 % 4 {
	case 0:
		if able == nil {
			t.leader.subreaper = on
		}
		m.same(m.e.SetSubreaper(tid, on), able)
	case 1:
		if able == nil {
			t.leader.ignores = on
		}
		m.same(m.e.IgnoreChildren(tid, on), able)
	case 2:
		if able == nil {
			t.leader.noWait = on
		}
		m.same(m.e.NoChildWait(tid, on), able)
	case 3:
		euid := uint32(0) // its real one still is
		if able == nil && tid != 1 {
			euid = 7 - t.euid
			t.euid = euid
		}
		m.same(m.e.SetUID(tid, Same, euid), able)
	}
}

func (m *model) unshare(tid uint32) {
	t := m.k.find(tid)
	if t != nil && t.obj.ns.level > 3 {
		return
	}
	m.what = fmt.Sprintf("unshare by %d", tid)
	want := error(nil)
	switch {
	case t == nil:
		want = unix.ESRCH
	case t.euid != 0:
		want = unix.EPERM
	case t.kids != t.obj.ns:
		want = unix.EINVAL
	default:
		_, want = m.k.able(tid)
	}
	ns, err := m.e.Unshare(tid)
	m.same(err, want)
	if err == nil {
		t.kids = &naiveNS{parent: t.obj.ns, level: t.obj.ns.level + 1, max: t.obj.ns.max}
		m.ns[t.kids] = ns
	}
}

// compare holds what the engine shows against the naive kernel.
func (m *model) compare() {
	m.Helper()
	var leaders []uint32
	for _, t := range m.k.tasks {
		m.task(t)
		if t.leader == t {
			leaders = append(leaders, t.obj.root())
		}
	}
	slices.Sort(leaders)
	var got []uint32
	var h table.Hot
	for w := m.e.Namespace().Leaders(0); w.Next(&h); {
		got = append(got, h.TID)
	}
	if !slices.Equal(got, leaders) {
		m.Fatalf("%s: leaders: got %v, want %v", m.what, got, leaders)
	}
	for nr, slot, ok := m.e.Namespace().Next(0); ok; nr, slot, ok = m.e.Namespace().Next(nr + 1) {
		o := m.k.objectIn(m.k.root, nr)
		if o == nil {
			m.Fatalf("%s: M5.3: number %d is left", m.what, nr)
		}
		if got := m.e.Pids().Numbers(slot, m.e.Namespace(), nil); !slices.Equal(got, o.nrs) {
			m.Fatalf("%s: numbers of %d: got %v, want %v", m.what, nr, got, o.nrs)
		}
	}
	n := len(m.k.objects)
	if got := int(m.e.Namespace().Users()); got != n {
		m.Fatalf("%s: pid objects: got %d, want %d", m.what, got, n)
	}
}

func (m *model) task(t *naiveTask) {
	m.Helper()
	tid := t.obj.root()
	var i Info
	if !m.e.Info(tid, &i) {
		m.Fatalf("%s: task %d is not there", m.what, tid)
	}
	want := Info{Hot: i.Hot, PGID: t.leader.pgid.root(), SID: t.leader.sid.root(), EUID: t.euid, Level: uint32(t.obj.ns.level), Usage: Usage{Switches: t.usage}}
	want.TID, want.TGID, want.PPID, want.Threads, want.State, want.Flags = tid, t.leader.obj.root(), 0, 0, 0, 0
	if t.leader == t {
		want.Threads = uint32(len(t.threads) + 1)
		if t.parent != nil {
			want.PPID = t.parent.obj.root()
		}
		switch {
		case t.zombie:
			want.State, want.Flags = 'Z', table.FlagZombie
		case t.exited:
			want.State, want.Flags = 'Z', table.FlagExitedLeader
		}
	}
	if i != want {
		m.Fatalf("%s: task %d:\n got %+v\nwant %+v", m.what, tid, i, want)
	}
	ns := m.ns[t.obj.ns]
	if ns == nil || m.e.Pids().Number(ns.Find(t.obj.in(t.obj.ns)), m.e.Namespace()) != tid {
		m.Fatalf("%s: task %d is not found by its own number %d", m.what, tid, t.obj.in(t.obj.ns))
	}
}

func runModel(t testing.TB, w *table.Writer, b []byte) *model {
	m := newModel(t, w, b)
	for n := 0; len(m.bytes) > 0 && n < 500; n++ {
		m.step()
		m.compare()
		checkInvariants(t, m.e, between)
		if m.k.root.dead {
			break
		}
	}
	checkSlotsUsed(t, m.e, len(m.k.objects))
	return m
}

// checkSlotsUsed fails t unless as many slots are in use as there are pid objects.
func checkSlotsUsed(t testing.TB, e *Engine, want int) {
	t.Helper()
	var got []uint32
	end := e.tab.Header().ChunksUsed * chunkRecords
	for uint32(len(got)) < end {
		slot, err := e.tab.NewSlot()
		if err != nil {
			t.Fatal(err)
		}
		if slot >= end {
			e.tab.FreeSlot(slot)
			break
		}
		got = append(got, slot)
	}
	if used := int(end) - 1 - len(got); used != want {
		t.Fatalf("%d slots are in use, want %d", used, want)
	}
	for i := range got {
		e.tab.FreeSlot(got[len(got)-1-i])
	}
}

// TestModelRequest runs scripts of requests at random.
func TestModelRequest(t *testing.T) {
	scripts := 300
	if testing.Short() {
		scripts = 40
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range scripts {
		w, err := table.NewAnonymous()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100+r.IntN(2000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		runModel(t, w, b)
		w.Close()
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 4, 0, 0, 15, 0, 8, 200, 12, 100, 1})
	f.Add([]byte{0, 7, 2, 0, 0, 0, 0, 0, 4, 0, 200, 10, 1, 0, 12, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := table.NewAnonymous()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		runModel(t, w, b)
	})
}
