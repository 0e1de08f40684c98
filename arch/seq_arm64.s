//go:build !purego && !race

#include "textflag.h"

#define ISHLD $0x9
#define ISHST $0xa

// func SeqRead32(dst *[3]uint64, rec *[4]uint64) bool
TEXT ·SeqRead32(SB), NOSPLIT|NOFRAME, $0-17
	MOVD dst+0(FP), R0
	MOVD rec+8(FP), R1
	LDAR (R1), R2         // D
	MOVD 8(R1), R4
	LDP  16(R1), (R5, R6)
	DMB  ISHLD            // B
	MOVD (R1), R3
	MOVD R4, (R0)
	STP  (R5, R6), 8(R0)
	EOR  R2, R3           // moved: a write came between
	AND  $1, R2           // odd: a write is in progress
	ORR  R2, R3
	CMP  $0, R3
	CSET EQ, R2
	MOVB R2, ret+16(FP)
	RET

// func SeqWrite32(rec *[4]uint64, src *[3]uint64)
TEXT ·SeqWrite32(SB), NOSPLIT|NOFRAME, $0-16
	MOVD rec+0(FP), R0
	MOVD src+8(FP), R1
	MOVD (R1), R4
	LDP  8(R1), (R5, R6)
	MOVD (R0), R2
	ORR  $1, R2
	MOVD R2, (R0)
	DMB  ISHST            // A
	MOVD R4, 8(R0)
	STP  (R5, R6), 16(R0)
	ADD  $1, R2
	STLR R2, (R0)         // C
	RET

// func SeqRead64(dst *[7]uint64, rec *[8]uint64) bool
TEXT ·SeqRead64(SB), NOSPLIT|NOFRAME, $0-17
	MOVD dst+0(FP), R0
	MOVD rec+8(FP), R1
	LDAR (R1), R2         // D
	MOVD 8(R1), R4
	LDP  16(R1), (R5, R6)
	LDP  32(R1), (R7, R8)
	LDP  48(R1), (R9, R10)
	DMB  ISHLD            // B
	MOVD (R1), R3
	MOVD R4, (R0)
	STP  (R5, R6), 8(R0)
	STP  (R7, R8), 24(R0)
	STP  (R9, R10), 40(R0)
	EOR  R2, R3           // moved: a write came between
	AND  $1, R2           // odd: a write is in progress
	ORR  R2, R3
	CMP  $0, R3
	CSET EQ, R2
	MOVB R2, ret+16(FP)
	RET

// func SeqWrite64(rec *[8]uint64, src *[7]uint64)
TEXT ·SeqWrite64(SB), NOSPLIT|NOFRAME, $0-16
	MOVD rec+0(FP), R0
	MOVD src+8(FP), R1
	MOVD (R1), R4
	LDP  8(R1), (R5, R6)
	LDP  24(R1), (R7, R8)
	LDP  40(R1), (R9, R10)
	MOVD (R0), R2
	ORR  $1, R2
	MOVD R2, (R0)
	DMB  ISHST            // A
	MOVD R4, 8(R0)
	STP  (R5, R6), 16(R0)
	STP  (R7, R8), 32(R0)
	STP  (R9, R10), 48(R0)
	ADD  $1, R2
	STLR R2, (R0)         // C
	RET

// func SeqRead128(dst *[15]uint64, rec *[16]uint64) bool
TEXT ·SeqRead128(SB), NOSPLIT|NOFRAME, $0-17
	MOVD dst+0(FP), R0
	MOVD rec+8(FP), R1
	LDAR (R1), R2         // D
	MOVD 8(R1), R4
	LDP  16(R1), (R5, R6)
	LDP  32(R1), (R7, R8)
	LDP  48(R1), (R9, R10)
	LDP  64(R1), (R11, R12)
	LDP  80(R1), (R13, R14)
	LDP  96(R1), (R15, R16)
	LDP  112(R1), (R19, R20)
	DMB  ISHLD            // B
	MOVD (R1), R3
	MOVD R4, (R0)
	STP  (R5, R6), 8(R0)
	STP  (R7, R8), 24(R0)
	STP  (R9, R10), 40(R0)
	STP  (R11, R12), 56(R0)
	STP  (R13, R14), 72(R0)
	STP  (R15, R16), 88(R0)
	STP  (R19, R20), 104(R0)
	EOR  R2, R3           // moved: a write came between
	AND  $1, R2           // odd: a write is in progress
	ORR  R2, R3
	CMP  $0, R3
	CSET EQ, R2
	MOVB R2, ret+16(FP)
	RET

// func SeqWrite128(rec *[16]uint64, src *[15]uint64)
TEXT ·SeqWrite128(SB), NOSPLIT|NOFRAME, $0-16
	MOVD rec+0(FP), R0
	MOVD src+8(FP), R1
	MOVD (R1), R4
	LDP  8(R1), (R5, R6)
	LDP  24(R1), (R7, R8)
	LDP  40(R1), (R9, R10)
	LDP  56(R1), (R11, R12)
	LDP  72(R1), (R13, R14)
	LDP  88(R1), (R15, R16)
	LDP  104(R1), (R19, R20)
	MOVD (R0), R2
	ORR  $1, R2
	MOVD R2, (R0)
	DMB  ISHST            // A
	MOVD R4, 8(R0)
	STP  (R5, R6), 16(R0)
	STP  (R7, R8), 32(R0)
	STP  (R9, R10), 48(R0)
	STP  (R11, R12), 64(R0)
	STP  (R13, R14), 80(R0)
	STP  (R15, R16), 96(R0)
	STP  (R19, R20), 112(R0)
	ADD  $1, R2
	STLR R2, (R0)         // C
	RET

// The copies of 256 bytes move vectors: there are not enough other registers.

// func SeqRead256(dst *[31]uint64, rec *[32]uint64) bool
TEXT ·SeqRead256(SB), NOSPLIT|NOFRAME, $0-17
	MOVD  dst+0(FP), R0
	MOVD  rec+8(FP), R1
	LDAR  (R1), R2         // D
	MOVD  8(R1), R4
	FLDPQ 16(R1), (F0, F1)
	FLDPQ 48(R1), (F2, F3)
	FLDPQ 80(R1), (F4, F5)
	FLDPQ 112(R1), (F6, F7)
	FLDPQ 144(R1), (F8, F9)
	FLDPQ 176(R1), (F10, F11)
	FLDPQ 208(R1), (F12, F13)
	FMOVQ 240(R1), F14
	DMB   ISHLD            // B
	MOVD  (R1), R3
	MOVD.P R4, 8(R0)
	FSTPQ (F0, F1), (R0)
	FSTPQ (F2, F3), 32(R0)
	FSTPQ (F4, F5), 64(R0)
	FSTPQ (F6, F7), 96(R0)
	FSTPQ (F8, F9), 128(R0)
	FSTPQ (F10, F11), 160(R0)
	FSTPQ (F12, F13), 192(R0)
	FMOVQ F14, 224(R0)
	EOR   R2, R3           // moved: a write came between
	AND   $1, R2           // odd: a write is in progress
	ORR   R2, R3
	CMP   $0, R3
	CSET  EQ, R2
	MOVB  R2, ret+16(FP)
	RET

// func SeqWrite256(rec *[32]uint64, src *[31]uint64)
TEXT ·SeqWrite256(SB), NOSPLIT|NOFRAME, $0-16
	MOVD  rec+0(FP), R0
	MOVD  src+8(FP), R1
	MOVD.P 8(R1), R4
	FLDPQ (R1), (F0, F1)
	FLDPQ 32(R1), (F2, F3)
	FLDPQ 64(R1), (F4, F5)
	FLDPQ 96(R1), (F6, F7)
	FLDPQ 128(R1), (F8, F9)
	FLDPQ 160(R1), (F10, F11)
	FLDPQ 192(R1), (F12, F13)
	FMOVQ 224(R1), F14
	MOVD  (R0), R2
	ORR   $1, R2
	MOVD  R2, (R0)
	DMB   ISHST            // A
	MOVD  R4, 8(R0)
	FSTPQ (F0, F1), 16(R0)
	FSTPQ (F2, F3), 48(R0)
	FSTPQ (F4, F5), 80(R0)
	FSTPQ (F6, F7), 112(R0)
	FSTPQ (F8, F9), 144(R0)
	FSTPQ (F10, F11), 176(R0)
	FSTPQ (F12, F13), 208(R0)
	FMOVQ F14, 240(R0)
	ADD   $1, R2
	STLR  R2, (R0)         // C
	RET
