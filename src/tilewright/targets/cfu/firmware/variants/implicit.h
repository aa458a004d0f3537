// The array, its matrices looked up in the tensors. POST: requantisation by instructions. UNROLLED: fully connected.
// What the document's three windows do not cover goes to the general kernel, where it has the instructions it needs.
#include "../kernels/implicit.h"
#include "../kernels/reference.h"
#include "../kernels/software.h"
#if POST
#include "../kernels/array.h"
#endif

static void run_conv(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  if (document_takes(op))
    conv_implicit(op, o, POST);
#if POST
  else if (array_takes(op))
    conv_array(op, o, memory->scratch);
#endif
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
