package task

import (
	"sync"
	"sync/atomic"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
)

// Engine keeps the tasks of one machine, or of one model.
//
//  1. Made by New over a table; not to be copied.
//  2. I1: a task is in the namespace exactly while its slot is in use, and its
//     published record is stored before its number becomes visible. I2: the ring
//     of a group holds its leader and every task of it; members counts them. I3:
//     a process ends (flag ended, once) when its leader has exited and no other
//     member is left, never before its last thread. I4: a record waits in at most
//     one queue, and every ended process waits in one of the two zombie queues
//     until it is reaped, and nothing else does.
//  3. mu guards every transition and all records; any goroutine may call any
//     method. Readers of the table, of Task and of Namespace take no lock. The
//     counters of Stats are atomic.
//  4. The order of publication is the table's and the namespace's.
//  5. A reader may see a task that is just being released, or miss one that is
//     just being born; each record that it gets is whole and bears its number.
//  6. A slot is reused at once; only (pid, gen) names a life.
//  7. Writers block each other on mu for one transition; readers are lock-free.
//  8. Source: MECHANISMS.md M1, M5.
type Engine struct {
	ids   *pid.Namespace
	ticks uint64 // USER_HZ

	stats Stats

	mu      sync.Mutex
	tab     *table.Writer
	recs    slab
	queues  [queues]queue
	gen     uint32
	scan    uint32    // number of the snapshot being merged, or of the last
	swept   uint32    // slot that Sweep looked at last
	scratch table.Hot // of update
}

// Stats count what the engine met since it was made.
type Stats struct {
	Repaired atomic.Uint64 // records that the kernel's word contradicted and that were put right
	Orphans  atomic.Uint64 // events that name a task or a group that the engine does not know
	Full     atomic.Uint64 // tasks left out because the table had no room
}

// New makes an engine without tasks over w, which it owns from now on. userHz is
// the unit of start_ticks (100 on every Linux in use).
func New(w *table.Writer, userHz uint64) *Engine {
	return &Engine{ids: pid.NewNamespace(w), tab: w, ticks: userHz}
}

// Namespace is the root PID namespace of the engine.
func (e *Engine) Namespace() *pid.Namespace { return e.ids }

// Stats are the live counters.
func (e *Engine) Stats() *Stats { return &e.stats }

// Task copies the published record of task tid. Lock-free.
func (e *Engine) Task(tid uint32) (h table.Hot, ok bool) {
	slot := e.ids.Find(tid)
	ok = slot != 0 && e.tab.Read(slot, &h) && h.TID == tid
	return h, ok
}

// Zombies is the number of ended processes that were not reaped yet.
func (e *Engine) Zombies() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(e.queues[zombieQueue].n + e.queues[zombieCheckQueue].n)
}

// bootTicks turns a time of CLOCK_BOOTTIME into start_ticks, as /proc does.
func (e *Engine) bootTicks(bootNs uint64) uint64 { return bootNs / (1e9 / e.ticks) }

// update rewrites the published record of slot. change must not call update.
func (e *Engine) update(slot uint32, change func(*table.Hot)) {
	h := &e.scratch // a local one would escape through change
	e.tab.Get(slot, h)
	change(h)
	e.tab.Put(slot, h)
	e.tab.Bump(&e.tab.Header().Changes, 1)
}

// ChangeType is what a Change tells.
type ChangeType uint8

// The types of Change. ThreadBorn and ThreadGone concern tasks that lead no group.
const (
	Nothing ChangeType = iota
	Born
	Execed
	Ended // the process: its last thread has exited
	Renamed
	ThreadBorn
	ThreadGone
)

// Change is what an observed event did to the table, for the event stream.
// Nothing if the event was late, told twice, or older than the snapshot.
type Change struct {
	StartTicks uint64
	PID, TID   uint32
	PPID       uint32
	Comm       [16]byte
	Type       ChangeType
}

func (c *Change) set(t ChangeType, h *table.Hot) {
	*c = Change{Type: t, PID: h.TGID, TID: h.TID, PPID: h.PPID, StartTicks: h.StartTicks, Comm: h.Comm}
}
