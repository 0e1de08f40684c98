// Package seqcount holds a sequence count by itself: readers of data of any shape
// learn whether a writer section came between, and read again. The type is
// generated from gen/spec/seqcount.spec, with a bound on every wait. Records of a
// fixed size have their own package, seqlock. Start at Count.
package seqcount

//go:generate go run ../../gen -spec ../../gen/spec/seqcount.spec -out .
