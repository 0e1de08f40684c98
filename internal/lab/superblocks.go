package lab

import "fmt"

// Superblocks chooses how the registry of namespaces mounts the file system that
// a namespace is born with (MECHANISMS.md M2), and how a later mount finds it.
type Superblocks uint8

const (
	// KnownNew inserts the superblock without a search; the namespace itself
	// leads later mounts to it.
	KnownNew Superblocks = iota
	// SearchHash searches a hash of all superblocks of the type by key, at birth too.
	SearchHash
	// SearchList searches the list of all superblocks of the type, at birth too: the
	// kernel before the change.
	SearchList
)

// String is the name as tables print it.
func (s Superblocks) String() string {
	switch s {
	case KnownNew:
		return "known-new"
	case SearchHash:
		return "hash"
	case SearchList:
		return "list"
	}
	return fmt.Sprintf("superblocks(%d)", uint8(s))
}
