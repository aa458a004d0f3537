// Addition and the fully connected layer with the post-processing instructions.
#pragma once
#include "../model.h"
#include "../quantize.h"

// The clamp instruction has the fixed range -128..127; the CPU clamps to a narrower one.
INLINE int8_t finish(int32_t x, int32_t offset, int32_t low, int32_t high) {
  x = add_and_clamp(x, offset);
  return (int8_t)(low == INT8_MIN && high == INT8_MAX ? x : clamp(x, low, high));
}

// The second operand has the larger scale, so its factor is exactly 1/2 (the compiler orders them).
INLINE void add_post_loop(
    const struct op *op, const int8_t *a, const int8_t *b, int8_t *output, int size, int32_t low, int32_t high) {
  const int32_t offset_a = op->input_offset, offset_b = op->input2_offset, offset = op->output_offset;
  const int32_t multiplier_a = op->input_multiplier, multiplier = op->output_multiplier;
  const int32_t right_a = -op->input_shift, right = -op->output_shift;
  for (int i = 0; i < size; i++) {
    const int32_t high_a = srdhm((a[i] + offset_a) << 20, multiplier_a);
    const int32_t scaled_a = rdbpot(high_a, right_a);
    const int32_t scaled_b = srdhm((b[i] + offset_b) << 20, 1 << 30);
    const int32_t sum = srdhm(scaled_a + scaled_b, multiplier);
    output[i] = finish(rdbpot(sum, right), offset, low, high);
  }
}

KERNEL void add_post(const struct op *op, const struct operands *o, int size) {
  if (op->low == INT8_MIN && op->high == INT8_MAX)
    add_post_loop(op, o->input, o->input2, o->output, size, INT8_MIN, INT8_MAX);
  else
    add_post_loop(op, o->input, o->input2, o->output, size, op->low, op->high);
}

KERNEL void fully_connected_unrolled(const struct op *op, const struct operands *o) {
  const int8_t *input = o->input;
  int8_t *output = o->output;
  const int32_t input_offset = op->input_offset;
  const int depth = op->in_c;
  for (int row = 0; row < op->out_h; row++, input += depth)
    for (int channel = 0; channel < op->out_c; channel++) {
      const int8_t *weight = o->weights + channel * depth;
      int32_t acc = o->bias[channel];
#pragma GCC unroll 8
      for (int d = 0; d < depth; d++) acc += (input[d] + input_offset) * weight[d];
      acc = scale_cfu(acc, o->multiplier[channel], o->shift[channel]);
      *output++ = finish(acc, op->output_offset, op->low, op->high);
    }
}

// Four products per instruction, as in CFU-Playground's tutorial. The machine needs the extension dot.
INLINE int dot_takes(const struct op *op) { return op->in_c % 4 == 0 && op->input_offset == 128; }

KERNEL void fully_connected_dot(const struct op *op, const struct operands *o) {
  const int32_t *weight = (const int32_t *)o->weights;
  int8_t *output = o->output;
  for (int row = 0; row < op->out_h; row++, weight = (const int32_t *)o->weights)
    for (int channel = 0; channel < op->out_c; channel++) {
      const int32_t *code = (const int32_t *)(o->input + row * op->in_c);
      int32_t acc = 0;
      put(DOT, 0);
#pragma GCC unroll 8
      for (int i = 0; i < op->in_c; i += 4) acc = dot(*code++, *weight++);
      acc = scale_cfu(acc + o->bias[channel], o->multiplier[channel], o->shift[channel]);
      *output++ = finish(acc, op->output_offset, op->low, op->high);
    }
}
