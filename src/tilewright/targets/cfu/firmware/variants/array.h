// The array computes every convolution without groups; instructions requantise.
#include "../kernels/portable.h"
#include "../kernels/array.h"

static void run_conv(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  if (array_takes(op))
    conv_array(op, o, memory->scratch);
  else
    conv_reference(op, o);
}
#define run_add add_post
#define run_fully_connected(op, o, memory) fully_connected_unrolled(op, o)
