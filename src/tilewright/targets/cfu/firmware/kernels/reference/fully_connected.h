// FULLY_CONNECTED as TensorFlow Lite Micro's reference kernel.
#pragma once
#include "../../model.h"
#include "../../quantize.h"

// Rows (out_h, in_c) times weights (out_c, in_c).
KERNEL void fully_connected_reference(const struct op *op, const struct operands *o) {
  for (int row = 0; row < op->out_h; row++)
    for (int channel = 0; channel < op->out_c; channel++) {
      int32_t acc = 0;
      for (int d = 0; d < op->in_c; d++) {
        int32_t value = o->input[row * op->in_c + d];
        int32_t weight = o->weights[channel * op->in_c + d];
        acc += weight * (value + op->input_offset);
      }
      acc += o->bias[channel];
      acc = scale_reference(acc, o->multiplier[channel], o->shift[channel]) + op->output_offset;
      o->output[row * op->out_c + channel] = (int8_t)clamp(acc, op->low, op->high);
    }
}
