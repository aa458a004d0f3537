// The array, with matrix elements read from the tensors (implicit im2col). POST: instructions requantise.
// Convolutions without one of the document's three windows use the general kernel, which needs POST.
#include "../kernels/portable.h"
#include "../kernels/implicit.h"
#include "../kernels/software.h"
#if POST
#include "../kernels/array.h"
#endif

enum { REFERENCE, UNROLLED, ON_ARRAY, BY_DOT };

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

static void run_fully_connected(const struct op *op, const struct operands *o, const struct memory *memory) {
  if (FULLY_CONNECTED == UNROLLED)
    fully_connected_unrolled(op, o);
#if POST
  else if (FULLY_CONNECTED == ON_ARRAY)
    fully_connected_array(op, o, memory->scratch);
  else if (FULLY_CONNECTED == BY_DOT && dot_takes(op))
    fully_connected_dot(op, o);
#endif
  else
    fully_connected_reference(op, o);
}
