// The kernels of this project: one function for each type of layer, in src/.
//
// `op` has the layer's shape and numbers (machine/layout.h), `o` points to its tensors and constants, and `memory` to
// free memory (memory->scratch). A kernel writes exactly the out_h * out_w * out_c codes at o->output.
#pragma once
#include "cfu.h"
#include "document.h"
#include "machine.h"
#include "model.h"
#include "quantize.h"
#include "tiles.h"

#define LAYER(name) void name(const struct op *op, const struct operands *o, const struct memory *memory)

LAYER(conv_2d);
LAYER(depthwise_conv_2d);
LAYER(fully_connected);
LAYER(add);
LAYER(average_pool_2d);
LAYER(max_pool_2d);
LAYER(softmax);

// What lib/main.c calls.
#define run_conv(index, op, o, memory) conv_2d(op, o, memory)
#define run_depthwise(op, o, memory) depthwise_conv_2d(op, o, memory)
#define run_fully_connected(op, o, memory) fully_connected(op, o, memory)
#define run_add(op, o, size) add(op, o, memory)
#define run_average_pool(op, o, memory) average_pool_2d(op, o, memory)
#define run_max_pool(op, o, memory) max_pool_2d(op, o, memory)
#define run_softmax(op, o, memory) softmax(op, o, memory)
