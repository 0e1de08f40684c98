// Package task is the life of tasks: born by clone, renamed, replaced by exec,
// exited, reaped (MECHANISMS.md M5).
//
// One set of transitions, two front doors. Request (Start, Clone, Exec, Exit,
// ExitGroup, Wait, SetSID, SetPGID, Unshare, …): a caller of the library asks and
// gets the kernel's errors; numbers are the engine's choice. Observe (ObserveFork,
// ObserveExec, …, and the snapshot's Merge): the kernel has done it already, its
// word wins, and what contradicts it is repaired and counted. An engine is used by
// one of the two: requests find only tasks that were made by request.
//
// Requests name tasks by their numbers in the root namespace; where a system call
// takes a number of the caller's namespace, so do they.
//
// Start reading at engine.go and record.go. Births: born.go, clone.go. Ends: exit.go,
// end.go, release.go, wait.go.
package task
