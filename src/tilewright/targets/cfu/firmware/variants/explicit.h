// The array, with its matrices in main memory. IN_BUFFER: partial sums stay in the array's buffer.
#include "../kernels/portable.h"
#include "../kernels/explicit.h"
#include "../kernels/software.h"

static void run_conv(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  if (document_takes(op))
    conv_explicit(op, o, memory->scratch, IN_BUFFER);
  else
    conv_reference(op, o);
}
#define run_add add_software
#define run_fully_connected(op, o, memory) fully_connected_reference(op, o)
