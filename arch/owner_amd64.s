//go:build !purego && !race

#include "textflag.h"

// func Goroutine() uint64
TEXT ·Goroutine(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ (TLS), AX
	MOVQ AX, ret+0(FP)
	RET

// func StoreOwned(p *[2]uint64, v uint64)
//
// Every store of amd64 is a release store. XCHGQ is a fence as well.
TEXT ·StoreOwned(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ (TLS), DX
	MOVQ DX, 8(AX)
	CMPB ·fenceStores(SB), $0
	JNE  fence
	MOVQ CX, (AX)
	RET

fence:
	XCHGQ CX, (AX)
	RET

// func IncrementOwned(p *[2]uint64)
TEXT ·IncrementOwned(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ p+0(FP), AX
	MOVQ (AX), CX
	MOVQ (TLS), DX
	INCQ CX
	MOVQ DX, 8(AX)
	CMPB ·fenceStores(SB), $0
	JNE  fence
	MOVQ CX, (AX)
	RET

fence:
	XCHGQ CX, (AX)
	RET
