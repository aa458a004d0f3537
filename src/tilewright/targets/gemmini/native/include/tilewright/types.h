/* Types and arithmetic of machines with int8 elements, an int32 accumulator and float32 scales. */
#ifndef TILEWRIGHT_GEMMINI_TYPES_H
#define TILEWRIGHT_GEMMINI_TYPES_H

#include <limits.h>
#include <math.h>
#include <stdint.h>

typedef int8_t elem_t;
typedef int32_t acc_t;
typedef int64_t full_t;
typedef float scale_t, acc_scale_t;
typedef uint32_t scale_t_bits, acc_scale_t_bits, scale_acc_t_bits;
typedef int32_t scale_acc_t;
static const elem_t elem_t_max __attribute__((unused)) = 127;
static const elem_t elem_t_min __attribute__((unused)) = -128;

#define HAS_MVIN_SCALE
#define ACC_SCALE_T_IS_FLOAT
#define ACC_SCALE_EXP_BITS 8
#define ACC_SCALE_SIG_BITS 24
#define MVIN_SCALE_IDENTITY 1.0
#define ACC_SCALE_IDENTITY 1.0

#define row_align(blocks) __attribute__((aligned((blocks) * DIM * sizeof(elem_t))))
#define row_align_acc(blocks) __attribute__((aligned((blocks) * DIM * sizeof(acc_t))))

/* Round half to even; saturate to int8. */
#define ROUND_NEAR_EVEN(x) __builtin_choose_expr(sizeof(x) == sizeof(float), rintf(x), rint(x))
static inline int tw_to_int8(float x) { return x > INT8_MAX ? INT8_MAX : x < INT8_MIN ? INT8_MIN : (int)x; }
#define ACC_SCALE(x, scale) ((acc_t)tw_to_int8(rintf((float)(x) * (acc_scale_t)(scale))))
#define MVIN_SCALE(x, scale) ((elem_t)tw_to_int8(rintf((float)(x) * (scale_t)(scale))))
#define MVIN_SCALE_ACC(x, scale) ((void)(scale), (x)) /* an int32 is never scaled */

/* A shift to the right that rounds half to even; a negative one shifts to the left. */
static inline int64_t tw_shifted(int64_t x, int shift) {
    if (shift <= 0) return (int64_t)((uint64_t)x << -shift);
    const int64_t whole = x >> shift, half = (int64_t)1 << (shift - 1), rest = x & (2 * half - 1);
    return whole + (rest > half || (rest == half && (whole & 1)));
}
#define ROUNDING_RIGHT_SHIFT(x, shift) tw_shifted(x, shift)
#define ROUNDING_RIGHT_SHIFT_BITS(x, shift) tw_shifted(x, shift)

#endif
