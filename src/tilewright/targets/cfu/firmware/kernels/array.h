// Any convolution without groups on the array: LANES pixels at a time, with taps in the memory order of the weights.
// k counts window rows, then window columns, then channels.
#pragma once
#include "gemm.h"

INLINE int32_t four(const int8_t *const *pixel, int channel) {
  const uint32_t first = (uint8_t)pixel[0][channel], second = (uint8_t)pixel[1][channel];
  const uint32_t third = (uint8_t)pixel[2][channel], fourth = (uint8_t)pixel[3][channel];
  return (int32_t)(first << 24 | second << 16 | third << 8 | fourth);
}

// Word i of a row whose elements are row[..][at].
#define WORD(i) four(row + 4 * (i), at)

// Push rows of A for one tap of LANES pixels from `m` on: channels `from` to `to` of the pixel under the tap.
// `place` is the address of the first word. Return the address after the last word.
INLINE int push_pixels(
    const struct op *op, const int8_t *input, const int8_t *outside, int m, int tap_y, int tap_x, int from, int to,
    int place) {
  const int8_t *row[LANES];
  int out_y = m / op->out_w, out_x = m % op->out_w;
  for (int i = 0; i < LANES; i++) {
    const int y = out_y * op->stride_h + tap_y * op->dilation_h - op->pad_h;
    const int x = out_x * op->stride_w + tap_x * op->dilation_w - op->pad_w;
    const int inside = out_y < op->out_h && (unsigned)y < (unsigned)op->in_h && (unsigned)x < (unsigned)op->in_w;
    row[i] = inside ? input + (y * op->in_w + x) * op->in_c : outside;
    if (++out_x == op->out_w) out_x = 0, out_y++;
  }
  for (int at = from; at < to; at++) PUSH_WORDS(set_matrix_a, WORD);
  return place;
}

// Push rows of B for LANES output channels from `n` on: weights `from` to `to` of each; `outside` for channels past N.
INLINE int push_weights(
    const int8_t *filter, const int8_t *outside, int n, int N, int K, int from, int to, int place) {
  const int8_t *row[LANES];
  for (int i = 0; i < LANES; i++) row[i] = n + i < N ? filter + (n + i) * K : outside;
  for (int at = from; at < to; at++) PUSH_WORDS(set_matrix_b, WORD);
  return place;
}

// Read and requantise all of C; lanes past N are dropped.
INLINE void read_out(const struct op *op, const struct operands *o, int m, int MM, int n, int NN) {
  const int N = op->out_c;
  for (int nn = n; nn < n + NN; nn += LANES)
    for (int mm = m; mm < m + MM; mm++)
      for (int i = 0; i < LANES; i++) {
        const int32_t sum = get_matrix_c(mm - m, nn - n + i);
        const int channel = nn + i;
        if (channel >= N) continue;
        const int32_t acc = scale_cfu(sum + o->bias[channel], o->multiplier[channel], o->shift[channel]);
        o->output[mm * N + channel] = finish(acc, op->output_offset, op->low, op->high);
      }
}

// `outside` has room for K codes of padding.
KERNEL void conv_array(const struct op *op, const struct operands *o, int8_t *outside) {
  const int M = op->out_h * op->out_w, N = op->out_c, taps = op->kernel_h * op->kernel_w, K = op->in_c * taps;
  for (int i = 0; i < K; i++) outside[i] = (int8_t)-op->input_offset;
  for (int m = 0; m < M; m += TILE_M) {
    const int MM = tile(M, m, TILE_M);
    for (int n = 0; n < N; n += TILE_N) {
      const int NN = tile(N, n, TILE_N);
      for (int k = 0; k < K; k += TILE_K) {
        const int end = k + tile(K, k, TILE_K);
        int place = 0;
        for (int mm = m; mm < m + MM; mm += LANES)
          for (int tap = k / op->in_c; tap * op->in_c < end; tap++) {
            const int first = tap * op->in_c;
            place = push_pixels(op, o->input, outside, mm, tap / op->kernel_w, tap % op->kernel_w,
                                at_least(k - first, 0), at_most(end - first, op->in_c), place);
          }
        place = 0;
        for (int nn = n; nn < n + NN; nn += LANES) place = push_weights(o->weights, outside, nn, N, K, k, end, place);
        multiply(MM, NN, end - k, op->input_offset, k > 0);
      }
      read_out(op, o, m, MM, n, NN);
    }
  }
}

// A has one row per input row, of K consecutive elements.
KERNEL void fully_connected_array(const struct op *op, const struct operands *o, int8_t *outside) {
  const int M = op->out_h, N = op->out_c, K = op->in_c;
  for (int i = 0; i < K; i++) outside[i] = (int8_t)-op->input_offset;
  for (int m = 0; m < M; m += TILE_M) {
    const int MM = tile(M, m, TILE_M);
    for (int n = 0; n < N; n += TILE_N) {
      const int NN = tile(N, n, TILE_N);
      for (int k = 0; k < K; k += TILE_K) {
        const int end = k + tile(K, k, TILE_K);
        int place = 0;
        for (int mm = m; mm < m + MM; mm += LANES) {
          const int8_t *row[LANES];
          for (int i = 0; i < LANES; i++) row[i] = mm + i < M ? o->input + (mm + i) * K : outside;
          for (int at = k; at < end; at++) PUSH_WORDS(set_matrix_a, WORD);
        }
        place = 0;
        for (int nn = n; nn < n + NN; nn += LANES) place = push_weights(o->weights, outside, nn, N, K, k, end, place);
        multiply(MM, NN, end - k, op->input_offset, k > 0);
      }
      read_out(op, o, m, MM, n, NN);
    }
  }
}
#undef WORD

INLINE int array_takes(const struct op *op) { return op->filter_c == op->in_c; }
