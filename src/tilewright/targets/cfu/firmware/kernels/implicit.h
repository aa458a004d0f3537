// Convolution on the array, matrix elements looked up in the tensors: three instances, as the document has them.
// k = channel, then window row, then window column.
#pragma once
#include "gemm.h"

enum window { WINDOW_3X3, WINDOW_3X3_HALVED, WINDOW_1X1_HALVED };

// Element (k, m) of the im2col matrix; the halved windows (stride 2) begin inside the image.
INLINE int8_t image_at(enum window window, const struct op *op, const struct operands *o, int output_w, int k, int m) {
  const int channel = window == WINDOW_1X1_HALVED ? k : k / 9, tap = window == WINDOW_1X1_HALVED ? 0 : k % 9;
  int y = tap / 3, x = tap % 3, inside;
  if (window == WINDOW_3X3) {
    y += m / output_w - 1;
    x += m % output_w - 1;
    inside = (unsigned)y < (unsigned)op->in_h && (unsigned)x < (unsigned)op->in_w;
  } else {
    y += m / output_w << 1;
    x += m % output_w << 1;
    inside = y < op->in_h && x < op->in_w;
  }
  return inside ? o->input[offset(&o->input_shape, 0, y, x, channel)] : (int8_t)-128;
}

// Element (k, n) of the weight matrix.
INLINE int8_t weight_at(enum window window, const struct operands *o, int k, int n) {
  if (window == WINDOW_1X1_HALVED) return o->weights[offset(&o->filter_shape, n, 0, 0, k)];
  return o->weights[offset(&o->filter_shape, n, k % 9 / 3, k % 9 % 3, k / 9)];
}

INLINE void conv_window(enum window window, const struct op *op, const struct operands *o, int post) {
  const int M = op->out_h * op->out_w, N = op->out_c, K = op->in_c * op->kernel_h * op->kernel_w;
  const int output_w = op->out_w;
#define IMAGE(k, m) image_at(window, op, o, output_w, k, m)
#define WEIGHT(k, n) weight_at(window, o, k, n)
  for (int m = 0; m < M; m += TILE_M) {
    const int MM = tile(M, m, TILE_M);
    for (int n = 0; n < N; n += TILE_N) {
      const int NN = tile(N, n, TILE_N);
      for (int k = 0; k < K; k += TILE_K) {
        const int KK = tile(K, k, TILE_K);
        for (int mm = 0; mm < MM; mm += 16)
          for (int kk = 0; kk < KK; kk++) PUSH(set_matrix_a, IMAGE, k + kk, m + mm);
        for (int nn = 0; nn < NN; nn += 16)
          for (int kk = 0; kk < KK; kk++) PUSH(set_matrix_b, WEIGHT, k + kk, n + nn);
        multiply(MM, NN, KK, 128, k > 0);
      }
      for (int r = 0; r < buffer_rows(MM, NN); r++) {
        const int mm = r % MM, nn = r / MM * 16;
        for (int i = 0; i < 16; i++) {
          const int channel = n + nn + i;
          int32_t acc = get_matrix_c() + o->bias[channel];
          if (post)
            acc = add_and_clamp(scale_cfu(acc, o->multiplier[channel], o->shift[channel]), op->output_offset);
          else
            acc = clamp(scale_software(acc, o->multiplier[channel], o->shift[channel]) + op->output_offset, -128, 127);
          const int out_y = (m + mm) / opaque(output_w), out_x = (m + mm) % opaque(output_w);
          o->output[offset(&o->output_shape, 0, out_y, out_x, channel)] = (int8_t)acc;
        }
      }
    }
  }
#undef IMAGE
#undef WEIGHT
}

KERNEL void conv_implicit(const struct op *op, const struct operands *o, int post) {
  if (op->stride_h == 1)
    conv_window(WINDOW_3X3, op, o, post);
  else if (op->kernel_h == 3)
    conv_window(WINDOW_3X3_HALVED, op, o, post);
  else
    conv_window(WINDOW_1X1_HALVED, op, o, post);
}
