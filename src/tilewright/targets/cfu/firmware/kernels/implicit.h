// Convolution on the array with implicit im2col: matrix elements are read from the tensors. Three instances, as in the
// document. k counts channels, then window rows, then window columns.
#pragma once
#include "gemm.h"

enum form { FORM_3X3, FORM_3X3_HALVED, FORM_1X1_HALVED };

// The tensors, and the shapes for the addresses of elements.
struct tensors {
  const struct shape *input_shape, *filter_shape;
  const int8_t *input, *filter;
  int input_h, input_w;
};

// The origins of a row's windows in the image. The document's compiler detected by itself that k does not affect them.
struct origins {
  int y[LANES], x[LANES];
};

INLINE void set_origins(struct origins *origins, enum form form, int output_w, int m) {
  for (int i = 0; i < LANES; i++) {
    const int y = (m + i) / output_w, x = (m + i) % output_w;
    origins->y[i] = form == FORM_3X3 ? y - 1 : y * 2;
    origins->x[i] = form == FORM_3X3 ? x - 1 : x * 2;
  }
}

// Element (k, m) of the im2col matrix, with m given by its origin. Halved windows (stride 2) begin inside the image.
INLINE int8_t image_at(enum form form, const struct tensors *t, const struct origins *origins, int k, int i) {
  const int channel = form == FORM_1X1_HALVED ? k : k / 9, tap = form == FORM_1X1_HALVED ? 0 : k % 9;
  const int y = tap / 3 + origins->y[i], x = tap % 3 + origins->x[i];
  const int inside = form == FORM_3X3 ? (unsigned)y < (unsigned)t->input_h && (unsigned)x < (unsigned)t->input_w
                                      : y < t->input_h && x < t->input_w;
  if (!inside) return -128;
  return t->input[offset(t->input_shape, 0, y, x, channel)];
}

// Element (k, n) of the weight matrix.
INLINE int8_t weight_at(enum form form, const struct tensors *t, int k, int n) {
  if (form == FORM_1X1_HALVED) return t->filter[offset(t->filter_shape, n, 0, 0, k)];
  return t->filter[offset(t->filter_shape, n, k % 9 / 3, k % 9 % 3, k / 9)];
}

INLINE void conv_window(
    enum form form, const struct window *window, const int32_t *multiplier, const int32_t *shift,
    const struct shape *input_shape, const int8_t *input, const struct shape *filter_shape, const int8_t *filter,
    const int32_t *bias, const struct shape *output_shape, int8_t *output, int post) {
  const int32_t output_offset = window->output_offset;
  const int output_w = output_shape->extent[2];
  const int M = output_shape->extent[1] * output_w, N = output_shape->extent[3];
  const int K = filter_shape->extent[1] * filter_shape->extent[2] * input_shape->extent[3];
  const struct tensors tensors = {input_shape, filter_shape, input, filter, input_shape->extent[1], input_shape->extent[2]};
  struct origins origins;
#define IMAGE(k, i) image_at(form, &tensors, &origins, k, i)
#define WEIGHT(k, n) weight_at(form, &tensors, k, n)
  for (int m = 0; m < M; m += TILE_M) {
    const int MM = tile(M, m, TILE_M);
    for (int n = 0; n < N; n += TILE_N) {
      const int NN = tile(N, n, TILE_N);
      for (int k = 0; k < K; k += TILE_K) {
        const int KK = tile(K, k, TILE_K);
        int place = 0;
        for (int mm = 0; mm < MM; mm += LANES) {
          set_origins(&origins, form, output_w, m + mm);
          for (int kk = 0; kk < KK; kk++) PUSH(set_matrix_a, IMAGE, k + kk, 0);
        }
        place = 0;
        for (int nn = 0; nn < NN; nn += LANES)
          for (int kk = 0; kk < KK; kk++) PUSH(set_matrix_b, WEIGHT, k + kk, n + nn);
        multiply(MM, NN, KK, 128, k > 0);
      }
      for (int r = 0; r < buffer_rows(MM, NN); r++) {
        const int mm = r % MM, nn = r / MM * LANES;
        for (int i = 0; i < LANES; i++) {
          const int channel = n + nn + i;
          const int32_t sum = get_matrix_c(mm, nn + i);
          if (LANES > 16 && channel >= N) continue;
          int32_t acc = sum + bias[channel];
          if (post)
            acc = add_and_clamp(scale_cfu(acc, multiplier[channel], shift[channel]), output_offset);
          else
            acc = clamp(scale_software(acc, multiplier[channel], shift[channel]) + output_offset, -128, 127);
          const int out_y = (m + mm) / opaque(output_w), out_x = (m + mm) % opaque(output_w);
          output[offset(output_shape, 0, out_y, out_x, channel)] = (int8_t)acc;
        }
      }
    }
  }
#undef IMAGE
#undef WEIGHT
}

KERNEL void conv_implicit(const struct op *op, const struct operands *o, int post) {
  const struct window window = window_of(op);
  const struct shape input_shape = shape_of(1, op->in_h, op->in_w, op->in_c);
  const struct shape filter_shape = shape_of(op->out_c, op->kernel_h, op->kernel_w, op->filter_c);
  const struct shape output_shape = shape_of(1, op->out_h, op->out_w, op->out_c);
#define CONV_WINDOW(form)                                                                              \
  conv_window(form, &window, o->multiplier, o->shift, &input_shape, o->input, &filter_shape, o->weights, \
              o->bias, &output_shape, o->output, post)
  if (op->stride_h == 1)
    CONV_WINDOW(FORM_3X3);
  else if (op->kernel_h == 3)
    CONV_WINDOW(FORM_3X3_HALVED);
  else
    CONV_WINDOW(FORM_1X1_HALVED);
#undef CONV_WINDOW
}
