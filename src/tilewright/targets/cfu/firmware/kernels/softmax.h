// Softmax in fixed point (gemmlowp): differences have 5 integer bits, their sum has 12.
#pragma once
#include "../model.h"
#include "../quantize.h"

#if TUNED  // the same functions as instructions
#define MULTIPLY srdhm
#define DIVIDE rdbpot
#else
#define MULTIPLY high_mul
#define DIVIDE divide_by_pot
#endif

enum { DIFF_BITS = 5, SUM_BITS = 12 };

// Return exp(a) in Q0.31 for a <= 0 in Q5.26: a power series on [-1/4, 0), then one factor per higher bit.
static int32_t exp_on_negative(int32_t a) {
  static const int32_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  if (a == 0) return INT32_MAX;
  const int32_t quarter = 1 << (31 - DIFF_BITS - 2);
  const int32_t remainder = (a & (quarter - 1)) - quarter;
  const int32_t x = remainder * (1 << DIFF_BITS) + (1 << 28);
  const int32_t x2 = MULTIPLY(x, x), x3 = MULTIPLY(x2, x);
  const int32_t x4_over_4 = DIVIDE(MULTIPLY(x2, x2), 2);
  const int32_t tail = DIVIDE(MULTIPLY(x4_over_4 + x3, 715827883) + x2, 1);
  int32_t result = 1895147668 + MULTIPLY(x + tail, 1895147668);
  const int32_t whole = remainder - a;
  for (int i = 0; i < 7; i++)
    if (whole & (quarter << i)) result = MULTIPLY(result, factors[i]);
  return result;
}

// Return 1 / (1 + x) in Q0.31 for x in Q0.31, 0 <= x < 1, by three Newton steps.
static int32_t reciprocal(int32_t x) {
  const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) >> 1);
  int32_t y = 1515870810 + MULTIPLY(half, -1010580540);
  for (int i = 0; i < 3; i++) {
    int32_t error = (1 << 29) - MULTIPLY(half, y);
    y += MULTIPLY(y, error) * 4;
  }
  int64_t wide = (int64_t)y * 2;
  return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

// Return one exponential; a difference below diff_min gives zero.
static int32_t weight_of(const struct op *op, int32_t diff) {
  if (diff < op->diff_min) return 0;
#if TUNED
  return exp_on_negative(scale_cfu(diff, op->input_multiplier, op->input_shift));
#else
  return exp_on_negative(scale_reference(diff, op->input_multiplier, op->input_shift));
#endif
}

// Compute out_h rows of in_c codes.
KERNEL void softmax(const struct op *op, const int8_t *input, int8_t *output) {
  for (int row = 0; row < op->out_h; row++, input += op->in_c, output += op->in_c) {
    int32_t most = INT8_MIN, sum = 0;
    for (int c = 0; c < op->in_c; c++) most = input[c] > most ? input[c] : most;
    for (int c = 0; c < op->in_c; c++) sum += DIVIDE(weight_of(op, input[c] - most), SUM_BITS);
    int leading = 0;
    while (!((uint32_t)sum << leading >> 31)) leading++;
    const int32_t scale = reciprocal((int32_t)(((uint32_t)sum << leading) - (1u << 31)));
    for (int c = 0; c < op->in_c; c++) {
      int32_t share = MULTIPLY(scale, weight_of(op, input[c] - most));
      int exponent = SUM_BITS - leading + 31 - 8;
      int32_t code = exponent > 31 ? 0 : DIVIDE(share, exponent);
      output[c] = (int8_t)clamp(code - 128, op->low, op->high);
    }
  }
}
