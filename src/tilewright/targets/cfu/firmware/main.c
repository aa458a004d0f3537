// The interpreter, which runs the operators of the model in order. The host stores the model after the program.
#include VARIANT
#include "machine.h"

extern int8_t model[];  // from link.ld: the first byte after the program
extern int8_t stack_top[];

enum { STACK_BYTES = 1 << 16 };
enum { OK, NO_MODEL, TOO_LARGE, OUT_OF_BOUNDS, UNKNOWN_OPERATOR };

static int run(int index, const struct op *op, const struct memory *memory) {
  const struct operands o = operands_of(op, memory);
  const int size = op->out_h * op->out_w * op->out_c;
#ifdef run_coupled
  if (op->coupled) {
    run_coupled(index, op, &o, memory);
    return OK;
  }
#endif
  switch (op->kind) {
    case KIND_CONV: run_conv(index, op, &o, memory); return OK;
    case KIND_DEPTHWISE: run_depthwise(op, &o, memory); return OK;
    case KIND_FULLY_CONNECTED: run_fully_connected(op, &o, memory); return OK;
    case KIND_ADD: run_add(op, &o, size); return OK;
    case KIND_AVERAGE_POOL: run_average_pool(op, &o, memory); return OK;
    case KIND_MAX_POOL: run_max_pool(op, &o, memory); return OK;
    case KIND_SOFTMAX: run_softmax(op, &o, memory); return OK;
    case KIND_COPY:
      for (int i = 0; i < size; i++) o.output[i] = o.input[i];
      return OK;
  }
  return UNKNOWN_OPERATOR;
}

// Return whether every offset lies within its memory. The compiler checks that tensors also end there.
static int in_bounds(const struct header *header, const struct op *op) {
  const int32_t constants[] = {op->weights, op->bias, op->multiplier, op->shift};
  const int32_t activations[] = {op->input, op->input2, op->output};
  for (int i = 0; i < 4; i++)
    if (constants[i] < 0 || constants[i] >= header->bytes) return 0;
  for (int i = 0; i < 3; i++)
    if (activations[i] < 0 || activations[i] >= header->arena_bytes) return 0;
  return 1;
}

static int fail(const char *text, int code) {
  print(text);
  return code;
}

int main(void) {
  const struct header *header = (const struct header *)model;
  if (header->magic != MODEL_MAGIC || header->version != MODEL_VERSION) return fail("no model of this version\n", NO_MODEL);
  const uint32_t room = (uint32_t)(stack_top - model) - STACK_BYTES;
  const uint32_t blob = ((uint32_t)header->bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
  if (blob > room || (uint32_t)header->arena_bytes > room - blob) return fail("model too large\n", TOO_LARGE);
  const struct op *ops = (const struct op *)(header + 1);
  if ((uint32_t)header->ops > (blob - sizeof *header) / sizeof *ops) return fail("model truncated\n", OUT_OF_BOUNDS);
  const struct memory memory = {model, model + blob, ops, header->ops, model + blob + header->arena_bytes};
  for (int i = 0; i < header->ops; i++)
    if (!in_bounds(header, &ops[i])) return fail("offset out of bounds\n", OUT_OF_BOUNDS);
  for (int i = 0; i < header->ops; i++) {
    REGION = (uint32_t)i + 1;
    int status = run(i, &ops[i], &memory);
    REGION = 0;
    if (status) return fail("unknown operator\n", status);
  }
  return OK;
}
