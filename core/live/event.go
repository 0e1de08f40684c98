package live

import "time"

// Kind is what an Event tells.
type Kind uint8

// The kinds of Event. A source delivers those that it can tell; Info.Tells
// names them.
const (
	// Fork: task TID of thread group PID was created by a task of group PPID.
	// A new process where TID == PID, else a new thread.
	Fork Kind = iota + 1
	// Exec: group PID runs a new program. TID == PID always; every other
	// thread of the group is gone, and a leader that was told to have exited
	// lives again (the thread that called execve has taken its number).
	Exec
	// Exit: task TID has left do_exit. The process ends with its last thread.
	Exit
	// Comm: task TID was renamed to Comm, without an exec.
	Comm
	// Free: the number TID was reaped. Only sources with TellsFree say so.
	Free
	// Lost: Event.Lost records were dropped by the kernel at about this place
	// in the stream; 0 means that their number is not known.
	Lost
	// Blind: the source could not see for a while, without losing a countable
	// record (a CPU that came online before its ring was there). The table
	// must be compared with /proc; nothing is added to the loss count.
	Blind
)

// Event is one record of the kernel, decoded. All numbers are those of the
// root PID namespace. The zero value is no event.
type Event struct {
	TimeNs uint64   // CLOCK_MONOTONIC, when the kernel made the record
	Lost   uint64   // Lost: how many
	PID    uint32   // thread group of the task
	TID    uint32   // the task
	PPID   uint32   // Fork: thread group of the creating task
	PTID   uint32   // Fork: the creating task, whose comm the child has; 0 where it is not told
	Code   uint32   // Exit: status as wait(2) encodes it, where HasCode is set
	Comm   [16]byte // Comm, and Exec where HasComm is set; NUL-padded
	Kind   Kind
	Flags  EventFlags
}

// EventFlags say which optional fields of an Event are filled.
type EventFlags uint8

const (
	HasComm EventFlags = 1 << iota
	HasCode
	// RealParent: PPID is the parent that /proc shows, not only the task that
	// called clone (they differ under CLONE_PARENT).
	RealParent
)

// Tells is the set of things that a source can tell beyond Fork and Exit.
type Tells uint32

const (
	TellsExecComm Tells = 1 << iota // the new comm comes with Exec
	TellsComm                       // renames without exec
	TellsCode                       // exit status
	TellsFree                       // reaping
	TellsParent                     // Fork.PPID is the real parent
)

// Info describes an open source. It does not change while the source is open.
type Info struct {
	Name     string // "perf", "netlink", "poll"
	LossKind string // "exact": every loss is counted; "detected": seen, not counted; "blind": not seen
	Tells    Tells
	RingSize int64 // bytes of kernel buffer in all
	Poll     bool  // delivers no events: the table is compared with /proc each time Wait returns
}

// Source delivers the kernel's records. Wait and Drain belong to one goroutine,
// locked to its OS thread; Wake may be called by any.
type Source interface {
	Info() Info
	// Wait returns when records are probably there, when timeout has passed,
	// or after Wake. An error means that the source is dead.
	Wait(timeout time.Duration) error
	// Drain fills buf with the oldest records and returns how many. Records
	// come in the order of cause and effect over all CPUs. more is false once
	// everything up to the time of the first call of this round was delivered.
	Drain(buf []Event) (n int, more bool, err error)
	// Wake makes a running or the next Wait return at once.
	Wake()
	Close() error
}
