//go:build !purego && !race

#include "textflag.h"

// func Goroutine() uint64
TEXT ·Goroutine(SB), NOSPLIT|NOFRAME, $0-8
	MOVD g, ret+0(FP)
	RET

// func StoreOwned(p *[2]uint64, v uint64)
TEXT ·StoreOwned(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	ADD  $8, R0, R2
	STLR g, (R2)
	STLR R1, (R0)
	RET

// func IncrementOwned(p *[2]uint64)
TEXT ·IncrementOwned(SB), NOSPLIT|NOFRAME, $0-8
	MOVD p+0(FP), R0
	MOVD (R0), R1
	ADD  $8, R0, R2
	ADD  $1, R1
	STLR g, (R2)
	STLR R1, (R0)
	RET
