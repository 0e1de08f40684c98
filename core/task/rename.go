package task

import (
	"fmt"

	"github.com/kpidd/kpidd/core/table"
	"golang.org/x/sys/unix"
)

// Rename gives task tid a new comm. ESRCH: no such task.
func (e *Engine) Rename(tid uint32, comm [16]byte) error {
	e.lock()
	defer e.unlock()
	slot := e.find(tid)
	if slot == 0 {
		return fmt.Errorf("rename task %d: %w", tid, unix.ESRCH)
	}
	e.renamedLocked(slot, comm)
	return nil
}

// ObserveRename applies a change of comm. One older than what a snapshot saw, or
// for an unknown task, changes nothing.
func (e *Engine) ObserveRename(tid uint32, comm [16]byte, atNs uint64, c *Change) {
	e.lock()
	defer e.unlock()
	c.Type = Nothing
	slot := e.find(tid)
	if slot == 0 || atNs <= e.recs.at(slot).seenNs {
		return
	}
	e.renamedLocked(slot, comm)
	var h table.Hot
	e.tab.Get(slot, &h)
	c.set(Renamed, &h)
}

func (e *Engine) renamedLocked(slot uint32, comm [16]byte) {
	e.update(slot, func(h *table.Hot) { h.Comm = comm })
}
