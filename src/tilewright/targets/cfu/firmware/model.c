#include "model.h"

struct shape shape_of(int batch, int height, int width, int channels) {
  return (struct shape){4, {batch, height, width, channels}};
}

struct window window_of(const struct op *op) {
  return (struct window){op->stride_h, op->stride_w,     op->dilation_h,    op->dilation_w, op->pad_h,
                         op->pad_w,    op->input_offset, op->output_offset, op->low,        op->high};
}
