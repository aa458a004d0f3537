// The custom instructions under the names that the document's author gave them; cfu.h has them under ours.
#pragma once
#include "cfu.h"

#define set_matrixA(uval, lval) cfu_op0(CFU_SET_MATRIXA, uval, lval)
#define set_matrixB(uval, lval) cfu_op0(CFU_SET_MATRIXB, uval, lval)
#define start_GEMM(M, N, K, off) cfu_op0(CFU_START_GEMM, (M) << 20 | (N) << 10 | (K), off)
#define start_GEMM_acc(M, N, K, off) cfu_op0(CFU_START_GEMM, 1 << 30 | (M) << 20 | (N) << 10 | (K), off)
#define check_GEMM() cfu_op0(CFU_CHECK_GEMM, 0, 0)
#define get_matrixC() cfu_op0(CFU_GET_MATRIXC, 0, 0)
#define post_set_SRDHM(a, b) cfu_op0(CFU_SET_SRDHM, a, b)
#define post_get_SRDHM() cfu_op0(CFU_GET_SRDHM, 0, 0)
#define post_RDBPOT(x, exp) cfu_op0(CFU_RDBPOT, x, exp)
#define post_off_maxmin(val, off) cfu_op0(CFU_OFF_MAXMIN, val, off)
