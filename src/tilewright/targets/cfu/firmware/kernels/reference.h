// The reference kernels of TensorFlow Lite Micro: every element is addressed through its tensor's shape.
#pragma once
#include "../model.h"
#include "../quantize.h"

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
            const int y = y_origin + dilation_h * filter_y;
            for (int filter_x = 0; filter_x < filter_w; filter_x++) {
              const int x = x_origin + dilation_w * filter_x;
              const int inside = x >= 0 && x < input_w && y >= 0 && y < input_h;
              if (!inside) continue;
              for (int c = 0; c < filter_depth; c++) {
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

// Rows (out_h, in_c) times weights (out_c, in_c).
KERNEL void fully_connected_reference(const struct op *op, const struct operands *o) {
  for (int row = 0; row < op->out_h; row++)
    for (int channel = 0; channel < op->out_c; channel++) {
      int32_t acc = 0;
      for (int d = 0; d < op->in_c; d++) {
        int32_t value = o->input[row * op->in_c + d];
        int32_t weight = o->weights[channel * op->in_c + d];
        acc += weight * (value + op->input_offset);
      }
      acc += o->bias[channel];
      acc = scale_reference(acc, o->multiplier[channel], o->shift[channel]) + op->output_offset;
      o->output[row * op->out_c + channel] = (int8_t)clamp(acc, op->low, op->high);
    }
}

INLINE int8_t add_element(const struct op *op, int8_t a, int8_t b) {
  const int32_t wide_a = (a + op->input_offset) * (1 << 20), wide_b = (b + op->input2_offset) * (1 << 20);
  const int32_t scaled_a = scale_reference(wide_a, op->input_multiplier, op->input_shift);
  const int32_t scaled_b = scale_reference(wide_b, op->input2_multiplier, op->input2_shift);
  const int32_t sum = scale_reference(scaled_a + scaled_b, op->output_multiplier, op->output_shift);
  return (int8_t)clamp(sum + op->output_offset, op->low, op->high);
}

KERNEL void add_reference(const struct op *op, const struct operands *o, int size) {
  for (int i = 0; i < size; i++) o->output[i] = add_element(op, o->input[i], o->input2[i]);
}
