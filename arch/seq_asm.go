//go:build !purego && !race && (amd64 || arm64)

package arch

// SeqRead64 copies the payload of rec to dst and reports whether it is one
// whole write. One try; false when a writer is at work or came between.
//
//go:noescape
func SeqRead64(dst *[7]uint64, rec *[8]uint64) bool

// SeqWrite64 writes src into rec as one whole write. One writer at a time. A
// sequence left odd by a writer that died is taken over.
//
//go:noescape
func SeqWrite64(rec *[8]uint64, src *[7]uint64)

// SeqRead128 is SeqRead64 for a record of 128 bytes.
//
//go:noescape
func SeqRead128(dst *[15]uint64, rec *[16]uint64) bool

// SeqWrite128 is SeqWrite64 for a record of 128 bytes.
//
//go:noescape
func SeqWrite128(rec *[16]uint64, src *[15]uint64)
