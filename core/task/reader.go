package task

import (
	"github.com/kpidd/kpidd/core/pid"
	"github.com/kpidd/kpidd/core/table"
	"github.com/kpidd/kpidd/generated/epoch"
)

// Reader reads tasks in read-side critical sections: what it finds in one stays
// readable, and nobody else's, to the section's end (M5.6). That does not hold for
// tasks whose number the kernel chose, whose slots are reused at once.
//
// Made by Engine.Register; it belongs to one goroutine at a time. Its calls are
// wait-free but for the record's bounded retries. A section that lasts holds up the
// reuse of slots and numbers, and must not wait for the engine.
type Reader struct {
	e *Engine
	r *epoch.Reader
}

// Register makes a reader. The label names it where readers that stall are told.
func (e *Engine) Register(label string) *Reader {
	return &Reader{e, e.pids.Domain().Register(label)}
}

// Unregister ends the reader, outside of a section.
func (r *Reader) Unregister() { r.r.Unregister() }

// Enter begins a section; sections do not nest.
func (r *Reader) Enter() { r.r.Enter() }

// Exit ends the section; no Ref found in it is used from here on.
func (r *Reader) Exit() { r.r.Exit() }

// Find returns the pid object of the task with number nr in ns.
func (r *Reader) Find(ns *pid.Namespace, nr uint32) (ref pid.Ref, ok bool) { return ns.Ref(nr) }

// Get copies the record of the task that was found in this section. If it has been
// released since, its number is 0 and its state X, and the rest is as it was. ok is
// false if the object has had no task yet.
func (r *Reader) Get(ref pid.Ref, h *table.Hot) (ok bool) {
	return r.e.tab.Read(ref.Slot, h) && h.Gen == ref.Gen
}

// Numbers appends the numbers of a pid object to dst: that in ns first, that in its
// own namespace last.
func (r *Reader) Numbers(ref pid.Ref, ns *pid.Namespace, dst []uint32) []uint32 {
	return r.e.pids.Numbers(ref.Slot, ns, dst)
}
