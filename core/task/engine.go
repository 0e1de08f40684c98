package task

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/internal/lab"
)

// Engine keeps the tasks of one machine, or of one model.
//
//  1. Made by New over a table; not to be copied.
//  2. I1: a task is in the namespace exactly while its slot is in use, and its
//     record is published before it can be found by number: a number without a task
//     leads to an empty record, or to one without a number. I2: the ring of a group
//     holds its leader and every task of it; members counts them. I3: a process
//     ends (flag ended, once) when its leader has exited and no other member is
//     left, never before its last thread. I4: a record waits in at most one queue,
//     and every ended process waits in one of the two zombie queues until it is
//     reaped, and nothing else does. I5: each task uses its pid object as PID, a
//     leader also as TGID, and the objects of its group and session as PGID and SID.
//  3. mu, the task-list lock, guards every transition and all records; any
//     goroutine may call any method. The pid lock is taken inside it, or alone
//     (lock.go). Readers of the table, of Task, Info, Ancestors, Reader and of
//     Namespace take no lock. The counters of Stats are atomic.
//  4. The order of publication is the table's and pid.Space's. F: the fields of
//     identity are stored before the record that shows its generation; readers load
//     the record, the fields, and the generation again.
//  5. A reader may see a task that is just being released, or miss one that is
//     just being born; each record that it gets is whole and bears its number.
//  6. A released task stays readable to the end of the sections in which it was
//     found (M5.6); then its slot is reused. A slot whose number the kernel chose is
//     reused at once; (pid, gen) names a life always.
//  7. Writers block each other on mu for one transition; what can be done after it
//     is done after it (release.go). Readers are lock-free.
//  8. Source: MECHANISMS.md M1, M5.
type Engine struct {
	pids   *pid.Space
	ids    *pid.Namespace // the root
	ticks  uint64         // USER_HZ
	made   time.Time
	bootNs uint64 // CLOCK_BOOTTIME at made
	hooks  Hooks  // immutable once tasks exist

	stats Stats
	hold  hold

	mu         sync.Mutex
	tab        *table.Writer
	recs       slab
	who        *pid.Slab[identity] // of tasks made by request
	queues     [queues]queue
	scan       uint32    // number of the snapshot being merged, or of the last
	swept      uint32    // slot that Sweep looked at last
	scratch    table.Hot // of update
	baseline   lab.Release
	waiting    int                       // goroutines in childEnded.Wait
	childEnded sync.Cond                 // some process has ended, or a task that may wait has gone
	unshared   map[uint32]*pid.Namespace // by slot: where the children of that task go
	vforks     map[uint32]pid.Ref        // by slot of the child: who waits for its exec or exit
}

// Stats count what the engine met since it was made.
type Stats struct {
	Repaired atomic.Uint64 // records that the kernel's word contradicted and that were put right
	Orphans  atomic.Uint64 // events that name a task or a group that the engine does not know
	Full     atomic.Uint64 // tasks left out because the table had no room
	Deferred atomic.Uint64 // tasks whose release left work to do after the lock
}

// New makes an engine without tasks over w, which it owns from now on. userHz is
// the unit of start_ticks (100 on every Linux in use).
func New(w *table.Writer, userHz uint64) *Engine {
	pids := pid.NewSpace(w)
	e := &Engine{
		pids: pids, ids: pids.Root(), tab: w, ticks: userHz, made: time.Now(), bootNs: table.BoottimeNs(), recs: slab{pid.NewSlab[record]()},
		who: pid.NewSlab[identity](), unshared: map[uint32]*pid.Namespace{}, vforks: map[uint32]pid.Ref{},
	}
	e.childEnded.L = &e.mu
	return e
}

// Pids are the engine's pid objects and namespaces.
func (e *Engine) Pids() *pid.Space { return e.pids }

// Namespace is the root PID namespace of the engine.
func (e *Engine) Namespace() *pid.Namespace { return e.ids }

// Stats are the live counters.
func (e *Engine) Stats() *Stats { return &e.stats }

// Task copies the published record of task tid. Lock-free.
func (e *Engine) Task(tid uint32) (h table.Hot, ok bool) {
	ok = e.ids.Read(tid, &h)
	return h, ok
}

// Zombies is the number of ended processes that were not reaped yet.
func (e *Engine) Zombies() int {
	e.lock()
	defer e.unlock()
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
