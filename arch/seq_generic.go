//go:build purego || race || (!amd64 && !arm64)

package arch

// SeqRead32 copies the payload of rec to dst and reports whether it is one
// whole write. One try; false when a writer is at work or came between.
func SeqRead32(dst *[3]uint64, rec *[4]uint64) bool { return seqRead(dst[:], rec[:]) }

// SeqWrite32 writes src into rec as one whole write. One writer at a time. A
// sequence left odd by a writer that died is taken over.
func SeqWrite32(rec *[4]uint64, src *[3]uint64) { seqWrite(rec[:], src[:]) }

// SeqRead64 is SeqRead32 for a record of 64 bytes.
func SeqRead64(dst *[7]uint64, rec *[8]uint64) bool { return seqRead(dst[:], rec[:]) }

// SeqWrite64 is SeqWrite32 for a record of 64 bytes.
func SeqWrite64(rec *[8]uint64, src *[7]uint64) { seqWrite(rec[:], src[:]) }

// SeqRead128 is SeqRead32 for a record of 128 bytes.
func SeqRead128(dst *[15]uint64, rec *[16]uint64) bool { return seqRead(dst[:], rec[:]) }

// SeqWrite128 is SeqWrite32 for a record of 128 bytes.
func SeqWrite128(rec *[16]uint64, src *[15]uint64) { seqWrite(rec[:], src[:]) }

// SeqRead256 is SeqRead32 for a record of 256 bytes.
func SeqRead256(dst *[31]uint64, rec *[32]uint64) bool { return seqRead(dst[:], rec[:]) }

// SeqWrite256 is SeqWrite32 for a record of 256 bytes.
func SeqWrite256(rec *[32]uint64, src *[31]uint64) { seqWrite(rec[:], src[:]) }
