// Operators on the CFU's image memory. Missing inputs are pushed, and outputs are read back if the CPU needs them.
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

INLINE int is_conv(const struct op *op) {
  return op->kind == KIND_CONV || (TUNED && op->kind == KIND_FULLY_CONNECTED);
}

#if DMA
// The next convolution's constants are loaded during this convolution, to other rows of B and entries of the tables.
static int fetched = -1;
#if STREAM
static int entry;  // of the tables, where the channels of the last fetched convolution begin
#endif

static void fetch_constants(int index, const struct memory *memory, int ahead) {
  for (; index < memory->op_count; index++) {
    const struct op *op = &memory->ops[index];
    if (!is_conv(op)) continue;
    if (index == fetched || (ahead && (op->coupled & COUPLED_LATE || !op->coupled))) return;  // B is still in use
    put(FETCH_ROW, op->rows_at);
    fetch(memory->constants + op->weights, weight_bytes(op));
#if STREAM
    entry = entry ? 0 : TABLE_ENTRIES - op->out_c;
    put(CHANNEL, entry);
    fetch_channels(memory->constants + op->bias, op->out_c);
#endif
    fetched = index;
    return;
  }
}
#endif

#if TUNED
// Read an operator's record into the data cache while the CFU works.
INLINE void read_ahead(const struct op *op) {
  const volatile int32_t *word = (const volatile int32_t *)op;
  for (unsigned i = 0; i < sizeof *op / sizeof *word; i += 8) (void)word[i];
  (void)word[sizeof *op / sizeof *word - 1];
}
#endif

#if STREAM
// The host has written this tensor, so it is in DRAM.
INLINE void fetch_tensor(const int8_t *from, int at, int bytes) {
  put(POINTER, at);
  fetch_image(from, (bytes + 7) & ~7);
}
#endif

KERNEL void run_coupled(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  if (TUNED && op->kind == KIND_COPY) return;  // in place
  const int in_bytes = op->in_h * op->in_w * op->in_c, out_bytes = op->out_h * op->out_w * op->out_c;
#if DMA
  if (is_conv(op)) fetch_constants(index, memory, 0);
#endif
  if (op->coupled & COUPLED_PUSH) push_tensor(o->input, op->input, in_bytes);
  if (op->coupled & COUPLED_PUSH2) push_tensor(o->input2, op->input2, in_bytes);
#if STREAM
  if (op->coupled & COUPLED_FETCH) fetch_tensor(o->input, op->input, in_bytes);
  if (op->coupled & COUPLED_FETCH2) fetch_tensor(o->input2, op->input2, in_bytes);
#endif
#define PUT(name, word) put(name, op->word)
  PUT(IN_H, in_h), PUT(IN_W, in_w), PUT(IN_C, in_c), PUT(OUT_H, out_h), PUT(OUT_W, out_w), PUT(OUT_C, out_c);
  PUT(INPUT, input), PUT(INPUT_OFFSET, input_offset), PUT(OUTPUT, output), PUT(OUTPUT_OFFSET, output_offset);
  PUT(LOW, low), PUT(HIGH, high);
  if (is_conv(op)) {
    PUT(KERNEL_H, kernel_h), PUT(KERNEL_W, kernel_w), PUT(STRIDE_H, stride_h), PUT(STRIDE_W, stride_w);
    PUT(PAD_H, pad_h), PUT(PAD_W, pad_w), PUT(ROW, rows_at);
#if !DMA
    push_rows(o->weights, weight_bytes(op));
#endif
#if STREAM
    put(TABLE, entry);
#else
    push_channels(o, op->out_c);
#endif
    start_conv();
#if DMA
    fetch_constants(index + 1, memory, 1);
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
#if TUNED
  if (index + 1 < memory->op_count) read_ahead(op + 1);
#endif
  while (check_gemm()) {
  }
  if (op->coupled & COUPLED_READ) read_tensor(o->output, op->output, out_bytes);
}
#define run_coupled run_coupled
