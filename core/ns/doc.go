// Package ns holds namespaces: who has which, who owns them, what file systems
// belong to them, and when they die (MECHANISMS.md M2: a key that is known to be
// new is never searched for).
//
// Two halves. Request: Registry makes, shares and buries namespaces for callers of
// the library, with the kernel's errors; each process has a Set. IPC, PID and
// mount namespaces are whole (a message queue file system; a level and a handle
// of the id tree; a list of mounts), the others are counted references. Observe:
// Observed keeps the namespaces that the running kernel shows, by (kind, inode
// number) and generation.
//
// Locks: the mu of a mount namespace, Registry.superMu, the number tree's own lock
// and Observed.mu. Each is taken alone: no two are ever held at once. References
// are given up, dead namespaces buried and hooks called with none of them held.
// Readers (Lookup, Get, Superblock, Set.At, Observed.Lookup) take none.
//
// Start reading at registry.go, then create.go (one way up, the same way down) and
// super.go; clone.go, unshare.go and setns.go are what processes ask for.
package ns
