// Shared by all convolutions on the array: tiles, a launch, and the convolutions that the document's kernels support.
// The build defines TILE_M, TILE_N and TILE_K from the sizes of the buffers.
#pragma once
#include "../model.h"
#include "lanes.h"
#include "post.h"

INLINE int tile(int total, int from, int size) { return at_most(total - from, size); }

// The number of rows of buffer C: m rows for each group of LANES columns.
INLINE int buffer_rows(int m, int n) { return m * ((n + LANES - 1) / LANES); }

INLINE void multiply(int m, int n, int k, int32_t offset, int add) {
  if (add)
    start_gemm_add(m, n, k, offset);
  else
    start_gemm(m, n, k, offset);
#if !CFU_START_BLOCKING
  while (check_gemm()) {
  }
#endif
}

// Hide from the compiler that 16 outputs have the same divisor: the document's compiler divided for each output.
INLINE int opaque(int x) {
  __asm__ volatile("" : "+r"(x));
  return x;
}

// Return whether the document's kernels support a convolution: only convolutions of the document's network.
INLINE int document_takes(const struct op *op) {
  const int square = op->kernel_h == op->kernel_w && op->stride_h == op->stride_w && op->pad_h == op->pad_w &&
                     op->dilation_h == 1 && op->dilation_w == 1 && op->filter_c == op->in_c;
  const int known = op->stride_h == 1 ? op->kernel_h == 3 && op->pad_h == 1
                                      : op->stride_h == 2 && (op->kernel_h == 3 || op->kernel_h == 1) && op->pad_h == 0;
  return square && known && op->out_h * op->out_w % 16 == 0 && op->out_c % 16 == 0 && op->input_offset == 128 &&
         op->low == INT8_MIN && op->high == INT8_MAX;
}
