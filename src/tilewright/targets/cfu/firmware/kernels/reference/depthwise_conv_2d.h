// DEPTHWISE_CONV_2D as TensorFlow Lite Micro's reference kernel.
#pragma once
#include "../../model.h"
#include "../../quantize.h"

static void depthwise_by_shapes(
    const struct window *window, const int32_t *multiplier, const int32_t *shift, const struct shape *input_shape,
    const int8_t *input, const struct shape *filter_shape, const int8_t *filter, const int32_t *bias,
    const struct shape *output_shape, int8_t *output) {
  const int32_t input_offset = window->input_offset, output_offset = window->output_offset;
  const int32_t low = window->low, high = window->high;
  const int stride_h = window->stride_h, stride_w = window->stride_w;
  const int dilation_h = window->dilation_h, dilation_w = window->dilation_w;
  const int pad_h = window->pad_h, pad_w = window->pad_w;
  const int input_h = input_shape->extent[1], input_w = input_shape->extent[2], input_depth = input_shape->extent[3];
  const int output_h = output_shape->extent[1], output_w = output_shape->extent[2];
  const int filter_h = filter_shape->extent[1], filter_w = filter_shape->extent[2];
  const int depth_multiplier = output_shape->extent[3] / input_depth;
  for (int out_y = 0; out_y < output_h; out_y++)
    for (int out_x = 0; out_x < output_w; out_x++)
      for (int in_channel = 0; in_channel < input_depth; in_channel++)
        for (int m = 0; m < depth_multiplier; m++) {
          const int channel = m + in_channel * depth_multiplier;
          const int x_origin = out_x * stride_w - pad_w, y_origin = out_y * stride_h - pad_h;
          int32_t acc = 0;
          for (int filter_y = 0; filter_y < filter_h; filter_y++)
            for (int filter_x = 0; filter_x < filter_w; filter_x++) {
              const int x = x_origin + dilation_w * filter_x, y = y_origin + dilation_h * filter_y;
              const int inside = x >= 0 && x < input_w && y >= 0 && y < input_h;
              if (!inside) continue;
              int32_t value = input[offset(input_shape, 0, y, x, in_channel)];
              int32_t weight = filter[offset(filter_shape, 0, filter_y, filter_x, channel)];
              acc += weight * (value + input_offset);
            }
          acc += bias[channel];
          acc = scale_reference(acc, multiplier[channel], shift[channel]) + output_offset;
          output[offset(output_shape, 0, out_y, out_x, channel)] = (int8_t)clamp(acc, low, high);
        }
}

KERNEL void depthwise_reference(const struct op *op, const struct operands *o) {
  const struct window window = window_of(op);
  const struct shape input_shape = shape_of(1, op->in_h, op->in_w, op->in_c);
  const struct shape filter_shape = shape_of(1, op->kernel_h, op->kernel_w, op->out_c);
  const struct shape output_shape = shape_of(1, op->out_h, op->out_w, op->out_c);
  depthwise_by_shapes(&window, o->multiplier, o->shift, &input_shape, o->input, &filter_shape, o->weights, o->bias,
                      &output_shape, o->output);
}
