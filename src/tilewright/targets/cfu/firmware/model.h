// What the kernels know of the model: its operators (layout.h), constants and activations.
#pragma once
#include "layout.h"

struct memory {
  const int8_t *constants;  // the blob, from its first byte
  int8_t *arena;            // activations
  const struct op *ops;
  int op_count;
  int8_t *scratch;  // what a kernel may use as it likes, up to the stack
};

// A tensor's extents: batch, height, width, channels. Made by a function of another file and passed by
// pointer, as in TensorFlow Lite: what a compiler makes of the kernels depends on it.
struct shape {
  int32_t rank, extent[5];
};

struct shape shape_of(int batch, int height, int width, int channels);

static inline int offset(const struct shape *shape, int batch, int y, int x, int channel) {
  const int32_t *sizes = shape->extent;
  return ((batch * sizes[1] + y) * sizes[2] + x) * sizes[3] + channel;
}

// An operator's window and offsets.
struct window {
  int stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int32_t input_offset, output_offset, low, high;
};

struct window window_of(const struct op *op);

static inline const int32_t *words(const struct memory *memory, int32_t at) {
  return (const int32_t *)(memory->constants + at);
}

// Every operator's constants and activations as pointers.
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
