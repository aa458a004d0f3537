// The model for kernels: operators (layout.h), constants and activations.
#pragma once
#include "layout.h"

struct memory {
  const int8_t *constants;  // the blob, from its first byte
  int8_t *arena;            // activations
  const struct op *ops;
  int op_count;
  int8_t *scratch;  // free memory for kernels, up to the stack
};

// A tensor's extents: batch, height, width, channels. As in TensorFlow Lite, a function in another file
// makes it and it is passed by pointer, because the compiled code of the kernels depends on this.
struct shape {
  int32_t rank, extent[5];
};

// bench/cfu_ladder.py defines AS_GCC for clang, which keeps more addresses in registers than GCC. It must then compute
// the address of an input again, from its row on, for each product.
#ifdef AS_GCC
#define COMPUTE_AGAIN(row) __asm__("" : "+r"(row))
#else
#define COMPUTE_AGAIN(row) (void)0
#endif

struct shape shape_of(int batch, int height, int width, int channels);

static inline int offset(const struct shape *shape, int batch, int y, int x, int channel) {
  const int32_t *sizes = shape->extent;
  return ((batch * sizes[1] + y) * sizes[2] + x) * sizes[3] + channel;
}

// The window, offsets and clamp range of an operator.
struct window {
  int stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int32_t input_offset, output_offset, low, high;
};

struct window window_of(const struct op *op);

static inline const int32_t *words(const struct memory *memory, int32_t at) {
  return (const int32_t *)(memory->constants + at);
}

// Pointers to the constants and activations of an operator.
struct operands {
  const int8_t *input, *input2, *weights;
  const int32_t *bias, *multiplier, *shift;
  int8_t *output;
};

static inline struct operands operands_of(const struct op *op, const struct memory *memory) {
  return (struct operands){
      .input = memory->arena + op->input,
      .input2 = memory->arena + op->input2,
      .weights = memory->constants + op->weights,
      .bias = words(memory, op->bias),
      .multiplier = words(memory, op->multiplier),
      .shift = words(memory, op->shift),
      .output = memory->arena + op->output,
  };
}
