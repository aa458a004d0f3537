// Average and maximum pools; padding is ignored.
#pragma once
#include "../model.h"
#include "../quantize.h"

KERNEL void pool(const struct op *op, const int8_t *input, int8_t *output, int maximum) {
  for (int out_y = 0; out_y < op->out_h; out_y++)
    for (int out_x = 0; out_x < op->out_w; out_x++)
      for (int channel = 0; channel < op->in_c; channel++) {
        const int y = out_y * op->stride_h - op->pad_h, x = out_x * op->stride_w - op->pad_w;
        const int y_end = at_most(op->kernel_h, op->in_h - y), x_end = at_most(op->kernel_w, op->in_w - x);
        int32_t sum = 0, most = INT8_MIN, count = 0;
        for (int filter_y = at_least(0, -y); filter_y < y_end; filter_y++)
          for (int filter_x = at_least(0, -x); filter_x < x_end; filter_x++) {
            int32_t value = input[((y + filter_y) * op->in_w + x + filter_x) * op->in_c + channel];
            sum += value;
            most = at_least(most, value);
            count++;
          }
        const int32_t half = sum > 0 ? count / 2 : -(count / 2);
        const int32_t code = maximum ? most : (sum + half) / count;
        output[(out_y * op->out_w + out_x) * op->in_c + channel] = (int8_t)clamp(code, op->low, op->high);
      }
}
