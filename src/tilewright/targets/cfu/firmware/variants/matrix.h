// Plain RV32IM, with convolutions as matrix products. EXPLICIT: im2col in main memory.
#include "../kernels/portable.h"
#include "../kernels/matrix.h"
#include "../kernels/software.h"

static void run_conv(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  if (op->filter_c != op->in_c || op->dilation_h != 1 || op->dilation_w != 1)
    conv_reference(op, o);
  else if (EXPLICIT)
    conv_matrix_explicit(op, o, memory->scratch);
  else
    conv_matrix_implicit(op, o);
}
#define run_add add_software
#define run_fully_connected(op, o, memory) fully_connected_reference(op, o)
