// Convolution as a matrix product in software. k counts channels, then window rows, then window columns.
// Explicit: both matrices are written to main memory first, a row per output. Implicit: elements come from the tensors.
#pragma once
#include "../model.h"
#include "../quantize.h"

INLINE int32_t image_element(const struct op *op, const int8_t *input, int y, int x, int channel) {
  const int inside = (unsigned)y < (unsigned)op->in_h && (unsigned)x < (unsigned)op->in_w;
  return inside ? input[(y * op->in_w + x) * op->in_c + channel] + op->input_offset : 0;
}

INLINE int8_t finished(const struct op *op, const struct operands *o, int32_t acc, int n) {
  acc = scale_software(acc + o->bias[n], o->multiplier[n], o->shift[n]);
  return (int8_t)clamp(acc + op->output_offset, op->low, op->high);
}

KERNEL void conv_matrix_implicit(const struct op *op, const struct operands *o) {
  const int kernel_h = op->kernel_h, kernel_w = op->kernel_w, depth = op->in_c;
  for (int m = 0; m < op->out_h * op->out_w; m++) {
    const int y = m / op->out_w * op->stride_h - op->pad_h, x = m % op->out_w * op->stride_w - op->pad_w;
    for (int n = 0; n < op->out_c; n++) {
      const int8_t *filter = o->weights + n * kernel_h * kernel_w * depth;
      int32_t acc = 0;
      for (int c = 0; c < depth; c++)
        for (int tap_y = 0; tap_y < kernel_h; tap_y++)
          for (int tap_x = 0; tap_x < kernel_w; tap_x++)
            acc += filter[(tap_y * kernel_w + tap_x) * depth + c] * image_element(op, o->input, y + tap_y, x + tap_x, c);
      o->output[m * op->out_c + n] = finished(op, o, acc, n);
    }
  }
}

KERNEL void conv_matrix_explicit(const struct op *op, const struct operands *o, int8_t *scratch) {
  const int taps = op->kernel_h * op->kernel_w, M = op->out_h * op->out_w, N = op->out_c, K = op->in_c * taps;
  int16_t *im2col = (int16_t *)scratch;
  int8_t *kernel = (int8_t *)(im2col + M * K);
  int16_t *element = im2col;
  for (int m = 0; m < M; m++) {
    const int y = m / op->out_w * op->stride_h - op->pad_h, x = m % op->out_w * op->stride_w - op->pad_w;
    for (int c = 0; c < op->in_c; c++)
      for (int tap_y = 0; tap_y < op->kernel_h; tap_y++)
        for (int tap_x = 0; tap_x < op->kernel_w; tap_x++)
          *element++ = (int16_t)image_element(op, o->input, y + tap_y, x + tap_x, c);
  }
  for (int n = 0; n < N; n++)
    for (int c = 0; c < op->in_c; c++)
      for (int tap = 0; tap < taps; tap++) kernel[n * K + c * taps + tap] = o->weights[(n * taps + tap) * op->in_c + c];
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) {
      const int16_t *left = im2col + m * K;
      const int8_t *right = kernel + n * K;
      int32_t acc = 0;
#pragma GCC unroll 8
      for (int k = 0; k < K; k++) acc += left[k] * right[k];
      o->output[m * N + n] = finished(op, o, acc, n);
    }
}
