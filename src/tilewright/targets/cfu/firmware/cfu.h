// Custom instructions: the CFU-Playground's call, and the instructions of the published design.
#pragma once
#include <stdint.h>

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

#define set_matrix_a(upper, lower) cfu_op0(0, upper, lower)
#define set_matrix_b(upper, lower) cfu_op0(1, upper, lower)
#define start_gemm(m, n, k, offset) cfu_op0(2, (m) << 20 | (n) << 10 | (k), offset)
#define start_gemm_add(m, n, k, offset) cfu_op0(2, 1 << 30 | (m) << 20 | (n) << 10 | (k), offset)
#define check_gemm() cfu_op0(3, 0, 0)
#define get_matrix_c() cfu_op0(4, 0, 0)
#define set_srdhm(a, b) cfu_op0(5, a, b)
#define get_srdhm() cfu_op0(6, 0, 0)
#define rdbpot(x, exponent) cfu_op0(7, x, exponent)
#define add_and_clamp(x, offset) cfu_op0(8, x, offset)
