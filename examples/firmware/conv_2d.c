// CONV_2D with four products per instruction: put it in the place of a project's src/conv_2d.c, and run the project with
// --cfu examples/firmware/cfu.v.
#include "kernels.h"

#define start_sum(first) ((void)cfu_op0(0, first, 0))
#define add_products(codes, weights) cfu_op0(1, codes, weights)

// The sum of `count` products, added to `acc`.
INLINE int32_t products(int32_t acc, const int8_t *code, const int8_t *weight, int count, int32_t input_offset, int four) {
  if (four) {
    const int32_t *codes = (const int32_t *)code, *weights = (const int32_t *)weight;
    for (int i = 0; i < count / 4; i++) acc = add_products(*codes++, *weights++);
    return acc;
  }
  for (int i = 0; i < count; i++) acc += (code[i] + input_offset) * weight[i];
  return acc;
}

INLINE void conv(const struct op *op, const struct operands *o, int four) {
  const int depth = op->filter_c, outputs_per_group = op->out_c / (op->in_c / depth);
  int8_t *output = o->output;
  for (int out_y = 0; out_y < op->out_h; out_y++)
    for (int out_x = 0; out_x < op->out_w; out_x++) {
      const int8_t *weight = o->weights;
      for (int channel = 0; channel < op->out_c; channel++) {
        const int8_t *input = o->input + channel / outputs_per_group * depth;
        int32_t acc = o->bias[channel];
        if (four) start_sum(acc);
        for (int tap_y = 0; tap_y < op->kernel_h; tap_y++) {
          const int y = out_y * op->stride_h + tap_y * op->dilation_h - op->pad_h;
          for (int tap_x = 0; tap_x < op->kernel_w; tap_x++, weight += depth) {
            const int x = out_x * op->stride_w + tap_x * op->dilation_w - op->pad_w;
            if ((unsigned)y >= (unsigned)op->in_h || (unsigned)x >= (unsigned)op->in_w) continue;
            acc = products(acc, input + (y * op->in_w + x) * op->in_c, weight, depth, op->input_offset, four);
          }
        }
        acc = scale_software(acc, o->multiplier[channel], o->shift[channel]) + op->output_offset;
        *output++ = (int8_t)clamp(acc, op->low, op->high);
      }
    }
}

LAYER(conv_2d) {
  if (op->filter_c % 4 == 0 && op->input_offset == 128)  // then all addresses of codes and weights are multiples of 4
    conv(op, o, 1);
  else
    conv(op, o, 0);
}
