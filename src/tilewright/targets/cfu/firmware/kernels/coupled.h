// Operators on the CFU's image memory: missing inputs are pushed, outputs needed in main memory are read back.
#pragma once
#include "post.h"

KERNEL void push_tensor(const int8_t *from, int at, int bytes) {
  const int32_t *word = (const int32_t *)from;
  put(POINTER, at);
#pragma GCC unroll 4
  for (int i = 0; i < bytes; i += 8, word += 2) push_image(word[0], word[1]);
}

KERNEL void read_tensor(int8_t *to, int at, int bytes) {
  int32_t *word = (int32_t *)to;
  put(POINTER, at);
#pragma GCC unroll 4
  for (int i = 0; i < bytes; i += 4) *word++ = get_image();
}

INLINE int weight_bytes(const struct op *op) {
  return (op->out_c + 15) / 16 * 16 * op->kernel_h * op->kernel_w * op->in_c;
}

KERNEL void push_rows(const int8_t *rows, int bytes) {
  const int32_t *word = (const int32_t *)rows;
#pragma GCC unroll 4
  for (int i = 0; i < bytes; i += 8, word += 2) set_matrix_b(word[0], word[1]);
}

KERNEL void push_channels(const struct operands *o, int channels) {
  for (int i = 0; i < channels; i++) {
    push_channel(o->bias[i], o->multiplier[i]);
    push_shift(o->shift[i]);
  }
}

#if DMA
// The weights of the next convolution load during this one: each has separate rows of B.
static int fetched = -1;

static void fetch_weights(int index, const struct memory *memory, int ahead) {
  for (; index < memory->op_count; index++) {
    const struct op *op = &memory->ops[index];
    if (op->kind != KIND_CONV) continue;
    if (index == fetched || (ahead && (op->coupled & COUPLED_LATE || !op->coupled))) return;  // B is still in use
    put(FETCH_ROW, op->rows_at);
    fetch(memory->constants + op->weights, weight_bytes(op));
    fetched = index;
    return;
  }
}
#endif

KERNEL void run_coupled(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  const int in_bytes = op->in_h * op->in_w * op->in_c, out_bytes = op->out_h * op->out_w * op->out_c;
#if DMA
  if (op->kind == KIND_CONV) fetch_weights(index, memory, 0);
#endif
  if (op->coupled & COUPLED_PUSH) push_tensor(o->input, op->input, in_bytes);
  if (op->coupled & COUPLED_PUSH2) push_tensor(o->input2, op->input2, in_bytes);
#define PUT(name, word) put(name, op->word)
  PUT(IN_H, in_h), PUT(IN_W, in_w), PUT(IN_C, in_c), PUT(OUT_H, out_h), PUT(OUT_W, out_w), PUT(OUT_C, out_c);
  PUT(INPUT, input), PUT(INPUT_OFFSET, input_offset), PUT(OUTPUT, output), PUT(OUTPUT_OFFSET, output_offset);
  PUT(LOW, low), PUT(HIGH, high);
  if (op->kind == KIND_CONV) {
    PUT(KERNEL_H, kernel_h), PUT(KERNEL_W, kernel_w), PUT(STRIDE_H, stride_h), PUT(STRIDE_W, stride_w);
    PUT(PAD_H, pad_h), PUT(PAD_W, pad_w), PUT(ROW, rows_at);
#if !DMA
    push_rows(o->weights, weight_bytes(op));
#endif
    push_channels(o, op->out_c);
    start_conv();
#if DMA
    fetch_weights(index + 1, memory, 1);
#endif
  } else if (op->kind == KIND_ADD) {
    PUT(INPUT2, input2), PUT(INPUT2_OFFSET, input2_offset);
    PUT(INPUT_MULTIPLIER, input_multiplier), PUT(INPUT_SHIFT, input_shift);
    PUT(OUTPUT_MULTIPLIER, output_multiplier), PUT(OUTPUT_SHIFT, output_shift);
    start_add();
  } else {
    start_pool();
  }
#undef PUT
  while (check_gemm()) {
  }
  if (op->coupled & COUPLED_READ) read_tensor(o->output, op->output, out_bytes);
}
#define run_coupled run_coupled
