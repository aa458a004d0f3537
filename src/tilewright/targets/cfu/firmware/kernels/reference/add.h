// ADD as TensorFlow Lite Micro's reference kernel.
#pragma once
#include "../../model.h"
#include "../../quantize.h"

INLINE int8_t add_element(const struct op *op, int8_t a, int8_t b) {
  const int32_t wide_a = (a + op->input_offset) * (1 << 20), wide_b = (b + op->input2_offset) * (1 << 20);
  const int32_t scaled_a = scale_reference(wide_a, op->input_multiplier, op->input_shift);
  const int32_t scaled_b = scale_reference(wide_b, op->input2_multiplier, op->input2_shift);
  const int32_t sum = scale_reference(scaled_a + scaled_b, op->output_multiplier, op->output_shift);
  return (int8_t)clamp(sum + op->output_offset, op->low, op->high);
}

KERNEL void add_reference(const struct op *op, const struct operands *o, int size) {
  for (int i = 0; i < size; i++) o->output[i] = add_element(op, o->input[i], o->input2[i]);
}
