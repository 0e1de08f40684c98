//go:build !purego && !race && (amd64 || arm64)

package arch

// SeqRead32 copies the payload of rec to dst and reports whether it is one
// whole write. One try; false when a writer is at work or came between.
//
//go:noescape
func SeqRead32(dst *[3]uint64, rec *[4]uint64) bool

// SeqWrite32 writes src into rec as one whole write. One writer at a time. A
// sequence left odd by a writer that died is taken over.
//
//go:noescape
func SeqWrite32(rec *[4]uint64, src *[3]uint64)

// SeqRead64 is SeqRead32 for a record of 64 bytes.
//
//go:noescape
func SeqRead64(dst *[7]uint64, rec *[8]uint64) bool

// SeqWrite64 is SeqWrite32 for a record of 64 bytes.
//
//go:noescape
func SeqWrite64(rec *[8]uint64, src *[7]uint64)

// SeqRead128 is SeqRead32 for a record of 128 bytes.
//
//go:noescape
func SeqRead128(dst *[15]uint64, rec *[16]uint64) bool

// SeqWrite128 is SeqWrite32 for a record of 128 bytes.
//
//go:noescape
func SeqWrite128(rec *[16]uint64, src *[15]uint64)

// SeqRead256 is SeqRead32 for a record of 256 bytes.
//
//go:noescape
func SeqRead256(dst *[31]uint64, rec *[32]uint64) bool

// SeqWrite256 is SeqWrite32 for a record of 256 bytes.
//
//go:noescape
func SeqWrite256(rec *[32]uint64, src *[31]uint64)
