// The reference kernels of TensorFlow Lite Micro.
#pragma once
#include "reference/conv_2d.h"
#include "reference/depthwise_conv_2d.h"
#include "reference/fully_connected.h"
#include "reference/add.h"
