// Package seqlock holds records of a fixed size that one writer replaces whole
// and any number of readers copy without a lock, also across processes. The
// types are generated for each size from gen/spec/seqlock.spec, so that every
// copy is straight-line code. Start at Rec128.
package seqlock

//go:generate go run ../../gen -spec ../../gen/spec/seqlock.spec -out .
