// Portable kernels of all operators. Each variant defines its own run_conv, run_add and run_fully_connected.
#pragma once
#include "pool.h"
#include "reference.h"
#include "softmax.h"

#define run_depthwise(op, o, memory) depthwise_reference(op, o)
#define run_average_pool(op, o, memory) pool(op, (o)->input, (o)->output, 0)
#define run_max_pool(op, o, memory) pool(op, (o)->input, (o)->output, 1)
#define run_softmax(op, o, memory) softmax(op, (o)->input, (o)->output)
