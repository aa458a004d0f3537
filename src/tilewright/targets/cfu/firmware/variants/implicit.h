// The array, its matrices looked up in the tensors. POST: requantisation by instructions. UNROLLED: fully connected.
#include "../kernels/implicit.h"
#include "../kernels/reference.h"
#include "../kernels/software.h"

static void run_conv(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  if (document_takes(op))
    conv_implicit(op, o, POST);
  else
    conv_reference(op, o);
}
#if POST
#define run_add add_post
#else
#define run_add add_software
#endif
#if UNROLLED
#define run_fully_connected fully_connected_unrolled
#else
#define run_fully_connected fully_connected_reference
#endif
