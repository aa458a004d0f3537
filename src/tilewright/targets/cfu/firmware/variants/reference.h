// Plain RV32IM, with the reference kernels.
#include "../kernels/portable.h"

#define run_conv(index, op, o, memory) conv_reference(op, o)
#define run_add add_reference
#define run_fully_connected(op, o, memory) fully_connected_reference(op, o)
