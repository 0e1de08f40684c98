// Package task is the life of tasks: born by clone, renamed, replaced by exec,
// exited, reaped (MECHANISMS.md M5).
//
// One set of transitions, two front doors. Request (Clone, Exec, Exit, Wait,
// Rename): a caller of the library asks and gets the kernel's errors. Observe
// (ObserveFork, ObserveExec, …, and the snapshot's Merge): the kernel has done it
// already, its word wins, and what contradicts it is repaired and counted.
//
// Start reading at engine.go, then born.go and exit.go.
package task
