// Plain RV32IM, with one specialised kernel per convolution: layers.h is generated from the model.
#include "../kernels/portable.h"
#include "../kernels/software.h"
#include "layers.h"

static void run_conv(int index, const struct op *op, const struct operands *o, const struct memory *memory) {
  switch (index) {
#define LAYER(number, ...)          \
  case number:                      \
    conv_software(o, __VA_ARGS__);  \
    return;
    CONV_LAYERS(LAYER)
  }
  conv_reference(op, o);
}
#define run_add add_software
#define run_fully_connected(op, o, memory) fully_connected_reference(op, o)
