//go:build !purego && !race

#include "textflag.h"

// Records are copied as one word and then pairs of words, so that the pairs of
// a record that is aligned to 16 bytes never straddle a cache line.

// func SeqRead32(dst *[3]uint64, rec *[4]uint64) bool
TEXT ·SeqRead32(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ   dst+0(FP), DI
	MOVQ   rec+8(FP), SI
	MOVQ   (SI), AX       // D
	MOVQ   8(SI), CX
	MOVUPS 16(SI), X0
	MOVQ   (SI), DX       // B
	MOVQ   CX, (DI)
	MOVUPS X0, 8(DI)
	MOVQ   AX, BX
	ANDQ   $1, BX         // odd: a write is in progress
	XORQ   AX, DX         // moved: a write came between
	ORQ    DX, BX
	SETEQ  ret+16(FP)
	RET

// func SeqWrite32(rec *[4]uint64, src *[3]uint64)
TEXT ·SeqWrite32(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ   rec+0(FP), DI
	MOVQ   src+8(FP), SI
	MOVQ   (SI), CX
	MOVUPS 8(SI), X0
	MOVQ   (DI), AX
	ORQ    $1, AX
	MOVQ   AX, (DI)       // A
	MOVQ   CX, 8(DI)
	MOVUPS X0, 16(DI)
	INCQ   AX
	MOVQ   AX, (DI)       // C
	RET

// func SeqRead64(dst *[7]uint64, rec *[8]uint64) bool
TEXT ·SeqRead64(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ   dst+0(FP), DI
	MOVQ   rec+8(FP), SI
	MOVQ   (SI), AX       // D
	MOVQ   8(SI), CX
	MOVUPS 16(SI), X0
	MOVUPS 32(SI), X1
	MOVUPS 48(SI), X2
	MOVQ   (SI), DX       // B
	MOVQ   CX, (DI)
	MOVUPS X0, 8(DI)
	MOVUPS X1, 24(DI)
	MOVUPS X2, 40(DI)
	MOVQ   AX, BX
	ANDQ   $1, BX         // odd: a write is in progress
	XORQ   AX, DX         // moved: a write came between
	ORQ    DX, BX
	SETEQ  ret+16(FP)
	RET

// func SeqWrite64(rec *[8]uint64, src *[7]uint64)
TEXT ·SeqWrite64(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ   rec+0(FP), DI
	MOVQ   src+8(FP), SI
	MOVQ   (SI), CX
	MOVUPS 8(SI), X0
	MOVUPS 24(SI), X1
	MOVUPS 40(SI), X2
	MOVQ   (DI), AX
	ORQ    $1, AX
	MOVQ   AX, (DI)       // A
	MOVQ   CX, 8(DI)
	MOVUPS X0, 16(DI)
	MOVUPS X1, 32(DI)
	MOVUPS X2, 48(DI)
	INCQ   AX
	MOVQ   AX, (DI)       // C
	RET

// func SeqRead128(dst *[15]uint64, rec *[16]uint64) bool
TEXT ·SeqRead128(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ   dst+0(FP), DI
	MOVQ   rec+8(FP), SI
	MOVQ   (SI), AX       // D
	MOVQ   8(SI), CX
	MOVUPS 16(SI), X0
	MOVUPS 32(SI), X1
	MOVUPS 48(SI), X2
	MOVUPS 64(SI), X3
	MOVUPS 80(SI), X4
	MOVUPS 96(SI), X5
	MOVUPS 112(SI), X6
	MOVQ   (SI), DX       // B
	MOVQ   CX, (DI)
	MOVUPS X0, 8(DI)
	MOVUPS X1, 24(DI)
	MOVUPS X2, 40(DI)
	MOVUPS X3, 56(DI)
	MOVUPS X4, 72(DI)
	MOVUPS X5, 88(DI)
	MOVUPS X6, 104(DI)
	MOVQ   AX, BX
	ANDQ   $1, BX         // odd: a write is in progress
	XORQ   AX, DX         // moved: a write came between
	ORQ    DX, BX
	SETEQ  ret+16(FP)
	RET

// func SeqWrite128(rec *[16]uint64, src *[15]uint64)
TEXT ·SeqWrite128(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ   rec+0(FP), DI
	MOVQ   src+8(FP), SI
	MOVQ   (SI), CX
	MOVUPS 8(SI), X0
	MOVUPS 24(SI), X1
	MOVUPS 40(SI), X2
	MOVUPS 56(SI), X3
	MOVUPS 72(SI), X4
	MOVUPS 88(SI), X5
	MOVUPS 104(SI), X6
	MOVQ   (DI), AX
	ORQ    $1, AX
	MOVQ   AX, (DI)       // A
	MOVQ   CX, 8(DI)
	MOVUPS X0, 16(DI)
	MOVUPS X1, 32(DI)
	MOVUPS X2, 48(DI)
	MOVUPS X3, 64(DI)
	MOVUPS X4, 80(DI)
	MOVUPS X5, 96(DI)
	MOVUPS X6, 112(DI)
	INCQ   AX
	MOVQ   AX, (DI)       // C
	RET

// func SeqRead256(dst *[31]uint64, rec *[32]uint64) bool
TEXT ·SeqRead256(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ   dst+0(FP), DI
	MOVQ   rec+8(FP), SI
	MOVQ   (SI), AX       // D
	MOVQ   8(SI), CX
	MOVUPS 16(SI), X0
	MOVUPS 32(SI), X1
	MOVUPS 48(SI), X2
	MOVUPS 64(SI), X3
	MOVUPS 80(SI), X4
	MOVUPS 96(SI), X5
	MOVUPS 112(SI), X6
	MOVUPS 128(SI), X7
	MOVUPS 144(SI), X8
	MOVUPS 160(SI), X9
	MOVUPS 176(SI), X10
	MOVUPS 192(SI), X11
	MOVUPS 208(SI), X12
	MOVUPS 224(SI), X13
	MOVUPS 240(SI), X14
	MOVQ   (SI), DX       // B
	MOVQ   CX, (DI)
	MOVUPS X0, 8(DI)
	MOVUPS X1, 24(DI)
	MOVUPS X2, 40(DI)
	MOVUPS X3, 56(DI)
	MOVUPS X4, 72(DI)
	MOVUPS X5, 88(DI)
	MOVUPS X6, 104(DI)
	MOVUPS X7, 120(DI)
	MOVUPS X8, 136(DI)
	MOVUPS X9, 152(DI)
	MOVUPS X10, 168(DI)
	MOVUPS X11, 184(DI)
	MOVUPS X12, 200(DI)
	MOVUPS X13, 216(DI)
	MOVUPS X14, 232(DI)
	MOVQ   AX, BX
	ANDQ   $1, BX         // odd: a write is in progress
	XORQ   AX, DX         // moved: a write came between
	ORQ    DX, BX
	SETEQ  ret+16(FP)
	RET

// func SeqWrite256(rec *[32]uint64, src *[31]uint64)
TEXT ·SeqWrite256(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ   rec+0(FP), DI
	MOVQ   src+8(FP), SI
	MOVQ   (SI), CX
	MOVUPS 8(SI), X0
	MOVUPS 24(SI), X1
	MOVUPS 40(SI), X2
	MOVUPS 56(SI), X3
	MOVUPS 72(SI), X4
	MOVUPS 88(SI), X5
	MOVUPS 104(SI), X6
	MOVUPS 120(SI), X7
	MOVUPS 136(SI), X8
	MOVUPS 152(SI), X9
	MOVUPS 168(SI), X10
	MOVUPS 184(SI), X11
	MOVUPS 200(SI), X12
	MOVUPS 216(SI), X13
	MOVUPS 232(SI), X14
	MOVQ   (DI), AX
	ORQ    $1, AX
	MOVQ   AX, (DI)       // A
	MOVQ   CX, 8(DI)
	MOVUPS X0, 16(DI)
	MOVUPS X1, 32(DI)
	MOVUPS X2, 48(DI)
	MOVUPS X3, 64(DI)
	MOVUPS X4, 80(DI)
	MOVUPS X5, 96(DI)
	MOVUPS X6, 112(DI)
	MOVUPS X7, 128(DI)
	MOVUPS X8, 144(DI)
	MOVUPS X9, 160(DI)
	MOVUPS X10, 176(DI)
	MOVUPS X11, 192(DI)
	MOVUPS X12, 208(DI)
	MOVUPS X13, 224(DI)
	MOVUPS X14, 240(DI)
	INCQ   AX
	MOVQ   AX, (DI)       // C
	RET
