// Custom instructions by CFU-Playground's call, cfu_op(funct3, funct7, a, b).
#pragma once
#include <stdint.h>

#include "cfu_machine.h"  // made from the machine's description: tilewright header cfu

#ifdef CFU_SOFTWARE_DEFINED
uint32_t software_cfu(int funct3, int funct7, uint32_t a, uint32_t b);
#define cfu_op(funct3, funct7, a, b) ((int32_t)software_cfu((funct3), (funct7), (uint32_t)(a), (uint32_t)(b)))
#else
#define cfu_op(funct3, funct7, a, b)                                              \
  ({                                                                              \
    int32_t cfu_result;                                                           \
    __asm__ volatile(".insn r CUSTOM_0, %1, %2, %0, %3, %4"                       \
                     : "=r"(cfu_result)                                           \
                     : "i"(funct3), "i"(funct7), "r"(a), "r"(b));                 \
    cfu_result;                                                                   \
  })
#endif
#define cfu_op0(funct7, a, b) cfu_op(0, funct7, a, b)

#define set_matrix_a(upper, lower) ((void)cfu_op0(CFU_SET_MATRIXA, upper, lower))
#define set_matrix_b(upper, lower) ((void)cfu_op0(CFU_SET_MATRIXB, upper, lower))
#define start_gemm(m, n, k, offset) cfu_op0(CFU_START_GEMM, (m) << 20 | (n) << 10 | (k), offset)
#define start_gemm_add(m, n, k, offset) cfu_op0(CFU_START_GEMM, 1 << 30 | (m) << 20 | (n) << 10 | (k), offset)
#define check_gemm() cfu_op0(CFU_CHECK_GEMM, 0, 0)
#if CFU_READOUT_RANDOM
#define get_matrix_c(row, column) cfu_op0(CFU_GET_MATRIXC, row, column)
#else  // whatever is next
#define get_matrix_c(row, column) cfu_op0(CFU_GET_MATRIXC, 0, 0)
#endif
#if CFU_SRDHM_SINGLE
#define srdhm(a, b) cfu_op0(CFU_SET_SRDHM, a, b)
#else
#define srdhm(a, b) ((void)cfu_op0(CFU_SET_SRDHM, a, b), cfu_op0(CFU_GET_SRDHM, 0, 0))
#endif
#define rdbpot(x, exponent) cfu_op0(CFU_RDBPOT, x, exponent)
#define add_and_clamp(x, offset) cfu_op0(CFU_OFF_MAXMIN, x, offset)

// Beyond the document.
#define put(field, value) ((void)cfu_op0(CFU_PUT, CFU_FIELD_##field, value))
#define push_image(first, second) ((void)cfu_op0(CFU_PUSH_IMAGE, first, second))
#define get_image() cfu_op0(CFU_GET_IMAGE, 0, 0)
#define push_channel(bias, multiplier) ((void)cfu_op0(CFU_PUSH_CHANNEL, bias, multiplier))
#define push_shift(shift) ((void)cfu_op0(CFU_PUSH_SHIFT, shift, 0))
#define start_conv() ((void)cfu_op0(CFU_START_CONV, 0, 0))
#define start_add() ((void)cfu_op0(CFU_START_ADD, 0, 0))
#define start_pool() ((void)cfu_op0(CFU_START_POOL, 0, 0))
#define fetch(address, bytes) ((void)cfu_op0(CFU_FETCH, address, bytes))
#define dot(codes, weights) cfu_op0(CFU_DOT, codes, weights)
