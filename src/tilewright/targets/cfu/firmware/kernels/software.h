// Software only: one instance of each kernel per layer, with a constant shape; requantisation without branches.
#pragma once
#include "../model.h"
#include "../quantize.h"

INLINE void conv_software(
    const struct operands *o, int in_h, int in_w, int in_c, int out_h, int out_w, int out_c, int kernel_h, int kernel_w,
    int stride_h, int stride_w, int pad_h, int pad_w, int32_t input_offset, int32_t output_offset, int low, int high) {
  int8_t *output = o->output;
  for (int out_y = 0; out_y < out_h; out_y++)
    for (int out_x = 0; out_x < out_w; out_x++)
      for (int channel = 0; channel < out_c; channel++) {
        const int8_t *filter = o->weights + channel * kernel_h * kernel_w * in_c;
        int32_t acc = o->bias[channel];
        for (int filter_y = 0; filter_y < kernel_h; filter_y++)
          for (int filter_x = 0; filter_x < kernel_w; filter_x++) {
            const int y = out_y * stride_h - pad_h + filter_y, x = out_x * stride_w - pad_w + filter_x;
            if ((unsigned)y >= (unsigned)in_h || (unsigned)x >= (unsigned)in_w) continue;
            const int8_t *pixel = o->input + (y * in_w + x) * in_c;
            const int8_t *weight = filter + (filter_y * kernel_w + filter_x) * in_c;
            for (int c = 0; c < in_c; c += 8)
#pragma GCC unroll 8
              for (int i = 0; i < 8; i++)
                if (in_c % 8 == 0 || c + i < in_c) acc += weight[c + i] * (pixel[c + i] + input_offset);
          }
        acc = scale_software(acc, o->multiplier[channel], o->shift[channel]);
        *output++ = (int8_t)clamp(acc + output_offset, low, high);
      }
}

// The second operand has the larger scale, so its factor is exactly 1/2 (the compiler orders them).
KERNEL void add_software(const struct op *op, const struct operands *o, int size) {
  const int8_t *a = o->input, *b = o->input2;
  int8_t *output = o->output;
  const int32_t offset_a = op->input_offset, offset_b = op->input2_offset, offset = op->output_offset;
  const int32_t multiplier_a = op->input_multiplier, multiplier = op->output_multiplier;
  const int32_t shift_a = op->input_shift, shift = op->output_shift, low = op->low, high = op->high;
  for (int i = 0; i < size; i++) {
    const int32_t scaled_a = scale_software((a[i] + offset_a) * (1 << 20), multiplier_a, shift_a);
    const int32_t scaled_b = (b[i] + offset_b) * (1 << 19);
    output[i] = (int8_t)clamp(scale_software(scaled_a + scaled_b, multiplier, shift) + offset, low, high);
  }
}
