// What all convolutions on the array share: tiles, packing of four codes, the results' way back.
#pragma once
#include "../model.h"
#include "post.h"

#ifndef TILE_M
#define TILE_M 256  // a buffer has 4096 rows of 16: TILE_M and TILE_N times TILE_K are at most 65536
#define TILE_N 256
#define TILE_K 256
#endif

INLINE int tile(int total, int from, int size) { return at_most(total - from, size); }

// Rows of the buffer C: one for each of m rows and 16 columns.
INLINE int buffer_rows(int m, int n) { return m * ((n + 15) / 16); }

typedef int32_t __attribute__((may_alias)) any_word;

// A row of 16 elements from column `at` on, in two halves. Lane 0 is the most significant byte of the first operand,
// so the bytes are listed backwards; through memory, as the document has it.
#define PUSH(set, element, k, at)                                                                           \
  do {                                                                                                      \
    int8_t lower[4] = {element(k, (at) + 7), element(k, (at) + 6), element(k, (at) + 5), element(k, (at) + 4)}; \
    int8_t upper[4] = {element(k, (at) + 3), element(k, (at) + 2), element(k, (at) + 1), element(k, at)};       \
    set(*(any_word *)upper, *(any_word *)lower);                                                            \
    int8_t lower2[4] = {element(k, (at) + 15), element(k, (at) + 14), element(k, (at) + 13), element(k, (at) + 12)}; \
    int8_t upper2[4] = {element(k, (at) + 11), element(k, (at) + 10), element(k, (at) + 9), element(k, (at) + 8)};   \
    set(*(any_word *)upper2, *(any_word *)lower2);                                                          \
  } while (0)

INLINE void multiply(int m, int n, int k, int32_t offset, int add) {
  if (add)
    start_gemm_add(m, n, k, offset);
  else
    start_gemm(m, n, k, offset);
  while (check_gemm()) {
  }
}

// The compiler must not see that a divisor is the same for 16 outputs: the document's compiler divided for each.
INLINE int opaque(int x) {
  __asm__ volatile("" : "+r"(x));
  return x;
}

// Whether the document's kernels compute this convolution: its network has no others.
INLINE int document_takes(const struct op *op) {
  const int square = op->kernel_h == op->kernel_w && op->stride_h == op->stride_w && op->pad_h == op->pad_w &&
                     op->dilation_h == 1 && op->dilation_w == 1 && op->filter_c == op->in_c;
  const int known = op->stride_h == 1 ? op->kernel_h == 3 && op->pad_h == 1
                                      : op->stride_h == 2 && (op->kernel_h == 3 || op->kernel_h == 1) && op->pad_h == 0;
  return square && known && op->out_h * op->out_w % 16 == 0 && op->out_c % 16 == 0 && op->input_offset == 128 &&
         op->low == INT8_MIN && op->high == INT8_MAX;
}
