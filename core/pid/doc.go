// Package pid holds pid objects and their numbers: one number in each level of
// nested PID namespaces, tags that say which numbers lead a thread group, and the
// roles in which tasks use them (MECHANISMS.md M1).
//
// The root namespace's numbers live in the published table's radix tree, so
// that what the engine searches and what mapped readers walk is one thing; a child
// namespace has a tree of its own. Start reading at space.go, then alloc.go and
// free.go; readers begin with namespace.go and walk.go.
package pid
