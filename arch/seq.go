package arch

// A record under a sequence lock is an array of 64-bit words: word 0 is the
// sequence, the rest is the payload. The zero array is a valid record with an
// empty payload. It lies in ordinary memory or in a mapping shared with other
// processes, whose readers may map it read-only.
//
// Invariants.
//
//	I1. The sequence is odd while a write is in progress, else even.
//	I2. The sequence grows by 2 with each whole write and never comes back
//	    (64 bits do not wrap in the life of a machine).
//	I3. A reader that saw the same even sequence before and after its copy has
//	    copied one whole write.
//
// Writers and readers. One writer per record at a time, held together by the
// caller. Any number of readers, which store nothing into the record.
//
// Ordering.
//
//	A. The store of the odd sequence goes before the stores of the payload.
//	   Pairs with B: a reader that copied a word of the new payload finds the
//	   sequence moved.
//	B. The loads of the payload go before the second load of the sequence.
//	C. The store of the even sequence goes after the stores of the payload
//	   (release). Pairs with D: a reader that saw it copies that payload or a
//	   newer one.
//	D. The first load of the sequence goes before the loads of the payload
//	   (acquire).
//
// On amd64 stores stay in order and loads stay in order, so A to D are plain
// moves. On arm64 A is DMB ISHST, B is DMB ISHLD, C is STLR, D is LDAR.
//
// What a racing reader sees: false, and then dst holds garbage. Never true
// with a torn payload. What it copied is its own; the record may be reused for
// something else at once, so the payload must carry its identity.
//
// Progress. A write is wait-free. It is one call into assembly, because the Go
// runtime stops a goroutine anywhere but there: a stopped writer would leave
// the sequence odd for milliseconds. (The operating system can still stop the
// thread.) One try of a read is wait-free; who repeats it sets the bound.
//
// Source: the seqlock_t of Linux; Boehm, "Can seqlocks get along with
// programming language memory models?" (2012).
