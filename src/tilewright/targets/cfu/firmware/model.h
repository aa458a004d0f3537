// What the kernels know of the model: its operators (layout.h), constants and activations.
#pragma once
#include "layout.h"

struct memory {
  const int8_t *constants;  // the blob, from its first byte
  int8_t *arena;            // activations
  int8_t *scratch;          // what a kernel may use as it likes, up to the stack
};

// A tensor's extents: batch, height, width, channels. Passed by pointer, as the reference kernels do.
struct shape {
  int32_t rank;
  int32_t extent[4];
};

static inline int offset(const struct shape *shape, int batch, int y, int x, int channel) {
  const int32_t *extent = shape->extent;
  return ((batch * extent[1] + y) * extent[2] + x) * extent[3] + channel;
}

static inline const int32_t *words(const struct memory *memory, int32_t at) {
  return (const int32_t *)(memory->constants + at);
}

// Every operator's constants and activations as pointers.
struct operands {
  const int8_t *input, *input2, *weights;
  const int32_t *bias, *multiplier, *shift;
  int8_t *output;
  struct shape input_shape, filter_shape, output_shape;
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
      .input_shape = {4, {1, op->in_h, op->in_w, op->in_c}},
      .filter_shape = {4, {op->out_c, op->kernel_h, op->kernel_w, op->filter_c}},
      .output_shape = {4, {1, op->out_h, op->out_w, op->out_c}},
  };
}
