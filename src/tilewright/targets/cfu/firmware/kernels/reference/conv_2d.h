// CONV_2D as TensorFlow Lite Micro's reference kernel: every element is addressed through its tensor's shape.
#pragma once
#include "../../model.h"
#include "../../quantize.h"

static void conv_by_shapes(
    const struct window *window, const int32_t *multiplier, const int32_t *shift, const struct shape *input_shape,
    const int8_t *input, const struct shape *filter_shape, const int8_t *filter, const int32_t *bias,
    const struct shape *output_shape, int8_t *output) {
  const int32_t input_offset = window->input_offset, output_offset = window->output_offset;
  const int32_t low = window->low, high = window->high;
  const int stride_h = window->stride_h, stride_w = window->stride_w;
  const int dilation_h = window->dilation_h, dilation_w = window->dilation_w;
  const int pad_h = window->pad_h, pad_w = window->pad_w;
  const int batches = input_shape->extent[0];
  const int input_h = input_shape->extent[1], input_w = input_shape->extent[2];
  const int filter_h = filter_shape->extent[1], filter_w = filter_shape->extent[2];
  const int filter_depth = filter_shape->extent[3];
  const int output_h = output_shape->extent[1], output_w = output_shape->extent[2];
  const int output_depth = output_shape->extent[3];
  const int filters_per_group = output_depth / (input_shape->extent[3] / filter_depth);
  for (int batch = 0; batch < batches; batch++)
    for (int out_y = 0; out_y < output_h; out_y++) {
      const int y_origin = out_y * stride_h - pad_h;
      for (int out_x = 0; out_x < output_w; out_x++) {
        const int x_origin = out_x * stride_w - pad_w;
        for (int channel = 0; channel < output_depth; channel++) {
          const int group = channel / filters_per_group;
          int32_t acc = 0;
          for (int filter_y = 0; filter_y < filter_h; filter_y++) {
            int y = y_origin + dilation_h * filter_y;
            for (int filter_x = 0; filter_x < filter_w; filter_x++) {
              const int x = x_origin + dilation_w * filter_x;
              const int inside = x >= 0 && x < input_w && y >= 0 && y < input_h;
              if (!inside) continue;
              for (int c = 0; c < filter_depth; c++) {
                COMPUTE_AGAIN(y);
                int32_t value = input[offset(input_shape, batch, y, x, c + group * filter_depth)];
                int32_t weight = filter[offset(filter_shape, channel, filter_y, filter_x, c)];
                acc += weight * (value + input_offset);
              }
            }
          }
          acc += bias[channel];
          acc = scale_reference(acc, multiplier[channel], shift[channel]) + output_offset;
          output[offset(output_shape, batch, out_y, out_x, channel)] = (int8_t)clamp(acc, low, high);
        }
      }
    }
}

KERNEL void conv_reference(const struct op *op, const struct operands *o) {
  const struct window window = window_of(op);
  const struct shape input_shape = shape_of(1, op->in_h, op->in_w, op->in_c);
  const struct shape filter_shape = shape_of(op->out_c, op->kernel_h, op->kernel_w, op->filter_c);
  const struct shape output_shape = shape_of(1, op->out_h, op->out_w, op->out_c);
  conv_by_shapes(&window, o->multiplier, o->shift, &input_shape, o->input, &filter_shape, o->weights, o->bias,
                 &output_shape, o->output);
}
