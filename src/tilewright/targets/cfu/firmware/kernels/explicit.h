// Convolution on the array with matrices in main memory: im2col [k][m] and weights [k][n], then requantisation.
// k counts channels, then window rows, then window columns.
#pragma once
#include "gemm.h"

INLINE void make_im2col(const struct op *op, const int8_t *input, int8_t *im2col) {
  const int input_h = op->in_h, input_w = op->in_w, depth = op->in_c, output_w = op->out_w;
  const int m = op->out_h * op->out_w, taps = op->kernel_h * op->kernel_w;
  for (int k = 0; k < depth * taps; k++) {
    const int channel = k / taps, tap_y = k % taps / op->kernel_w, tap_x = k % taps % op->kernel_w;
    for (int out_y = 0; out_y < op->out_h; out_y++)
      for (int out_x = 0; out_x < output_w; out_x++) {
        const int y = out_y * op->stride_h + tap_y - op->pad_h, x = out_x * op->stride_w + tap_x - op->pad_w;
        const int inside = (unsigned)y < (unsigned)input_h && (unsigned)x < (unsigned)input_w;
        im2col[k * m + out_y * output_w + out_x] = inside ? input[(y * input_w + x) * depth + channel] : (int8_t)-128;
      }
  }
}

INLINE void make_kernel(const struct op *op, const int8_t *filter, int8_t *kernel) {
  const int depth = op->in_c, taps = op->kernel_h * op->kernel_w, n = op->out_c;
  for (int k = 0; k < depth * taps; k++)
    for (int channel = 0; channel < n; channel++)
      kernel[k * n + channel] = filter[(channel * taps + k % taps) * depth + k / taps];
}

INLINE void write_back(
    const struct op *op, const struct operands *o, const struct shape *shape, const int32_t *result, int N) {
  for (int out_y = 0; out_y < op->out_h; out_y++)
    for (int out_x = 0; out_x < op->out_w; out_x++)
      for (int n = 0; n < N; n++) {
        int32_t acc = result[(out_y * op->out_w + out_x) * N + n] + o->bias[n];
        acc = scale_software(acc, o->multiplier[n], o->shift[n]) + op->output_offset;
        o->output[offset(shape, 0, out_y, out_x, n)] = (int8_t)clamp(acc, -128, 127);
      }
}

// `in_buffer`: partial sums over tiles of k stay in the array's buffer until they are complete.
KERNEL void conv_explicit(
    const struct op *op, const struct operands *o, int8_t *scratch, int in_buffer) {
  const int M = op->out_h * op->out_w, N = op->out_c, K = op->in_c * op->kernel_h * op->kernel_w;
  int32_t *result = (int32_t *)scratch;
  int8_t *im2col = scratch + 4 * M * N, *kernel = im2col + K * M;
  make_im2col(op, o->input, im2col);
  make_kernel(op, o->weights, kernel);
  for (int i = 0; i < M * N; i++) result[i] = 0;
#define IMAGE(k, m) im2col[(k) * M + (m)]
#define WEIGHT(k, n) kernel[(k) * N + (n)]
  for (int m = 0; m < M; m += TILE_M) {
    const int MM = tile(M, m, TILE_M);
    for (int n = 0; n < N; n += TILE_N) {
      const int NN = tile(N, n, TILE_N);
      for (int k = 0; k < K; k += TILE_K) {
        const int KK = tile(K, k, TILE_K);
        int place = 0;
        for (int mm = 0; mm < MM; mm += LANES)
          for (int kk = 0; kk < KK; kk++) PUSH(set_matrix_a, IMAGE, k + kk, m + mm);
        place = 0;
        for (int nn = 0; nn < NN; nn += LANES)
          for (int kk = 0; kk < KK; kk++) PUSH(set_matrix_b, WEIGHT, k + kk, n + nn);
        multiply(MM, NN, KK, 128, in_buffer && k > 0);
        if (in_buffer && k + TILE_K < K) continue;
        for (int r = 0; r < buffer_rows(MM, NN); r++) {
          const int mm = r % MM, nn = r / MM * LANES;
          for (int i = 0; i < LANES; i++) {
            const int32_t sum = get_matrix_c(mm, nn + i);
            if (LANES <= 16 || n + nn + i < N) result[(m + mm) * N + n + nn + i] += sum;
          }
        }
      }
    }
  }
#undef IMAGE
#undef WEIGHT
  const struct shape shape = shape_of(1, op->out_h, op->out_w, op->out_c);
  write_back(op, o, &shape, result, N);
}
