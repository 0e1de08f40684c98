// Package pid holds pid numbers: which task has which number, and which numbers
// lead a thread group (MECHANISMS.md M1).
//
// The root namespace's numbers live in the published table's radix tree, so
// that what the engine searches and what mapped readers walk is one thing.
// Start reading at namespace.go.
package pid
