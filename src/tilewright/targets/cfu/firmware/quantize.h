// Requantise int32 accumulators to int8 codes with gemmlowp's double rounding: three equivalent implementations.
#pragma once
#include "cfu.h"

#define INLINE static inline __attribute__((always_inline))
#define KERNEL static __attribute__((noinline))  // not inlined, so that profiles show it

INLINE int at_most(int a, int b) { return a < b ? a : b; }
INLINE int at_least(int a, int b) { return a > b ? a : b; }

INLINE int32_t clamp(int32_t x, int32_t low, int32_t high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// SaturatingRoundingDoublingHighMul, as in the reference kernels.
INLINE int32_t high_mul(int32_t a, int32_t b) {
  int overflow = a == b && a == INT32_MIN;
  int64_t product = (int64_t)a * b;
  int32_t nudge = product >= 0 ? 1 << 30 : 1 - (1 << 30);
  int32_t high = (int32_t)((product + nudge) / (1ll << 31));
  return overflow ? INT32_MAX : high;
}

// RoundingDivideByPOT: to nearest, ties away from zero; 0 <= exponent <= 31.
INLINE int32_t divide_by_pot(int32_t x, int exponent) {
  int32_t mask = (int32_t)((1ll << exponent) - 1);
  int32_t remainder = x & mask;
  int32_t threshold = (mask >> 1) + (x < 0);
  return (x >> exponent) + (remainder > threshold);
}

// x * multiplier * 2**(shift - 31) with both roundings. As in TensorFlow Lite, it is in another file.
int32_t scale_reference(int32_t x, int32_t multiplier, int32_t shift);

// `high_mul` without branches, for |a * b| < 2**62: adding 2**30 and flooring rounds in the same way.
INLINE int32_t high_mul_short(int32_t a, int32_t b) {
  return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

INLINE int32_t scale_software(int32_t x, int32_t multiplier, int32_t shift) {
  if (__builtin_expect(shift >= 0, 0)) return high_mul_short((int32_t)((uint32_t)x << shift), multiplier);
  int32_t high = high_mul_short(x, multiplier);
  return (high + (1 << (-shift - 1)) + (high >> 31)) >> -shift;
}

INLINE int32_t scale_cfu(int32_t x, int32_t multiplier, int32_t shift) {
  if (__builtin_expect(shift >= 0, 0)) return srdhm((uint32_t)x << shift, multiplier);
  int32_t high = srdhm(x, multiplier);
  return rdbpot(high, -shift);
}
