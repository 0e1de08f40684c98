// Package table is the published process table: one file on tmpfs that the
// daemon maps for writing and any number of readers map read-only.
//
// Its layout (layout_gen.go, emitted from gen/spec/table.spec) is a header page,
// the radix tree of pid numbers with its tags (generated/radix), and dense hot
// records of 128 bytes, each under a seqlock (generated/seqlock). Readers list
// processes without a system call and without asking the daemon.
//
// Start reading at view.go (what both sides share), then writer.go and reader.go;
// dir.go says where the file lives, segment.go how it is made.
package table

//go:generate go run ../../gen -spec ../../gen/spec/table.spec -out .
