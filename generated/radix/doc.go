// Package radix holds two-level radix trees from small integer keys, such as
// pid numbers, to slot numbers, with tags that make a walk over the tagged
// entries cost what they number. They lie in memory of the caller, which may be
// mapped by other processes. The types are generated for each width from
// gen/spec/radix.spec. Start at Tree22.
package radix

//go:generate go run ../../gen -spec ../../gen/spec/radix.spec -out .
