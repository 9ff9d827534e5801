#include "textflag.h"

// func adamFours(x, m, v, g []float32, alpha, c1, c2, epsilon float32)
//
// AX, BX, DX and SI point to x, m, v and g. DI is the offset of the present four elements in bytes, CX that of the
// end. X4 to X7 have four times alpha, c1, c2 and epsilon.
TEXT ·adamFours(SB), NOSPLIT, $0-112
	MOVQ   x_base+0(FP), AX
	MOVQ   x_len+8(FP), CX
	MOVQ   m_base+24(FP), BX
	MOVQ   v_base+48(FP), DX
	MOVQ   g_base+72(FP), SI
	MOVSS  alpha+96(FP), X4
	MOVSS  c1+100(FP), X5
	MOVSS  c2+104(FP), X6
	MOVSS  epsilon+108(FP), X7
	SHUFPS $0, X4, X4
	SHUFPS $0, X5, X5
	SHUFPS $0, X6, X6
	SHUFPS $0, X7, X7
	SHLQ   $2, CX
	XORQ   DI, DI
	JMP    check

loop:
	MOVUPS (SI)(DI*1), X0 // g
	MOVUPS (BX)(DI*1), X1 // m
	MOVUPS (DX)(DI*1), X2 // v

	// m += (g - m) * c1
	MOVAPS X0, X3
	SUBPS  X1, X3
	MULPS  X5, X3
	ADDPS  X3, X1
	MOVUPS X1, (BX)(DI*1)

	// v += (g*g - v) * c2
	MULPS  X0, X0
	SUBPS  X2, X0
	MULPS  X6, X0
	ADDPS  X0, X2
	MOVUPS X2, (DX)(DI*1)

	// x -= m * alpha / (sqrt(v) + epsilon)
	MULPS  X4, X1
	SQRTPS X2, X2
	ADDPS  X7, X2
	DIVPS  X2, X1
	MOVUPS (AX)(DI*1), X0
	SUBPS  X1, X0
	MOVUPS X0, (AX)(DI*1)

	ADDQ $16, DI

check:
	CMPQ DI, CX
	JLT  loop
	RET
