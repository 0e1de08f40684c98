// Package radix holds radix trees from integer keys of 8 to 128 bits, with tags
// that make a walk over the tagged entries cost what they number, and with the
// allocation of ids. Tree22 lies in memory of the caller, which may be mapped by
// other processes; values of the others are pointers (Tree22GC) or ids of a slab
// (Tree22Slab). All are generated from gen/spec/radix.spec. Start at Tree22GC.
package radix

//go:generate go run ../../gen -spec ../../gen/spec/radix.spec -out .
