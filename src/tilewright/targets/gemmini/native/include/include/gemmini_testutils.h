/* Helpers of tests, by the names of gemmini_testutils.h of ucb-bar/gemmini-rocc-tests at 180c468. */
#ifndef TILEWRIGHT_GEMMINI_TESTUTILS_H
#define TILEWRIGHT_GEMMINI_TESTUTILS_H

#include "include/gemmini.h"

#ifdef BAREMETAL
#undef assert
#define assert(expr) \
    if (!(expr)) { \
        printf("Failed assertion: %s (%s:%d)\n", #expr, __FILE__, __LINE__); \
        exit(1); \
    }
#endif

/* Products of matrices of DIM x DIM; `_short` keeps the result in elem_t, `_full` takes a wide D. */
#define TW_MATMUL(name, a, b, d_type, c_type) \
    static TW_UNUSED void name( \
        elem_t A[DIM][DIM], elem_t B[DIM][DIM], d_type D[DIM][DIM], c_type C[DIM][DIM]) { \
        for (size_t r = 0; r < DIM; r++) \
            for (size_t c = 0; c < DIM; c++) { \
                C[r][c] = D[r][c]; \
                for (size_t k = 0; k < DIM; k++) C[r][c] += a * b; \
            } \
    }
#define TW_MATMULS(suffix, a, b) \
    TW_MATMUL(matmul##suffix, a, b, elem_t, full_t) \
    TW_MATMUL(matmul_short##suffix, a, b, elem_t, elem_t) \
    TW_MATMUL(matmul_full##suffix, a, b, full_t, full_t)
TW_MATMULS(, A[r][k], B[k][c])
TW_MATMULS(_A_transposed, A[k][r], B[k][c])
TW_MATMULS(_B_transposed, A[r][k], B[c][k])
TW_MATMULS(_AB_transposed, A[k][r], B[c][k])
#undef TW_MATMULS
#undef TW_MATMUL

/* Apply an expression to each element [r][c]. */
#define TW_EACH for (size_t r = 0; r < DIM; r++) for (size_t c = 0; c < DIM; c++)
static inline elem_t tw_saturated(full_t x) { return x > elem_t_max ? elem_t_max : x < elem_t_min ? elem_t_min : x; }

static TW_UNUSED void matadd(full_t sum[DIM][DIM], full_t m1[DIM][DIM], full_t m2[DIM][DIM]) {
    TW_EACH sum[r][c] = m1[r][c] + m2[r][c];
}
static TW_UNUSED void matshift(full_t full[DIM][DIM], elem_t out[DIM][DIM], int shift) {
    TW_EACH out[r][c] = tw_saturated(ROUNDING_RIGHT_SHIFT(full[r][c], shift));
}
static TW_UNUSED void matscale(full_t full[DIM][DIM], elem_t out[DIM][DIM], acc_scale_t scale) {
    TW_EACH out[r][c] = tw_saturated(ACC_SCALE(full[r][c], scale));
}
static TW_UNUSED void matrelu(elem_t in[DIM][DIM], elem_t out[DIM][DIM]) {
    TW_EACH out[r][c] = in[r][c] > 0 ? in[r][c] : 0;
}
static TW_UNUSED void transpose(elem_t in[DIM][DIM], elem_t out[DIM][DIM]) { TW_EACH out[c][r] = in[r][c]; }
static TW_UNUSED int is_equal(elem_t x[DIM][DIM], elem_t y[DIM][DIM]) {
    TW_EACH if (x[r][c] != y[r][c]) return 0;
    return 1;
}
static TW_UNUSED int is_equal_transposed(elem_t x[DIM][DIM], elem_t y[DIM][DIM]) {
    TW_EACH if (x[r][c] != y[c][r]) return 0;
    return 1;
}
#undef TW_EACH

static TW_UNUSED void printMatrix(elem_t m[DIM][DIM]) {
    for (size_t r = 0; r < DIM; r++, printf("\n"))
        for (size_t c = 0; c < DIM; c++) printf("%d ", m[r][c]);
}
static TW_UNUSED void printMatrixAcc(acc_t m[DIM][DIM]) {
    for (size_t r = 0; r < DIM; r++, printf("\n"))
        for (size_t c = 0; c < DIM; c++) printf("%d ", m[r][c]);
}

#define MAT_IS_EQUAL(dim_i, dim_j, x, y) \
    ({ \
        int tw_same = 1; \
        for (size_t tw_i = 0; tw_i < (dim_i); tw_i++) \
            for (size_t tw_j = 0; tw_j < (dim_j); tw_j++) tw_same &= (x)[tw_i][tw_j] == (y)[tw_i][tw_j]; \
        tw_same; \
    })

/* Numbers in 0..255, the same in every run: the generator of upstream (factor and increment of Numerical Recipes). */
static inline int tw_rand(void) {
    static uint32_t state = 777;
    state = state * 1664525 + 1013904223;
    return state >> 24;
}
#define rand() tw_rand()

/* Cycles of the machine. The CPU takes none. */
static TW_UNUSED uint64_t read_cycles(void) { return tw_gemmini_cycles(); }

#undef abs

#endif
