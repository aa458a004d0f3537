/* The functions of gemmini.h for convolutions, with the parameters that they have there. */
#ifndef TILEWRIGHT_GEMMINI_CONV_API_H
#define TILEWRIGHT_GEMMINI_CONV_API_H

static TW_UNUSED void tiled_conv(
    int batch_size, int in_row_dim, int in_col_dim, int in_channels, int out_channels, int out_row_dim,
    int out_col_dim, int stride, int input_dilation, int kernel_dilation, int padding, int kernel_dim, int in_stride,
    int weight_stride, int out_stride, bool wrot180, bool trans_output_1203, bool trans_input_3120,
    bool trans_weight_1203, bool trans_weight_0132, int batches, int porows, int pocols, int pochs, int krows,
    int kcols, int kchs, const elem_t *input, const elem_t *weights, const acc_t *bias, elem_t *output, int act,
    acc_scale_t scale, int pool_size, int pool_stride, int pool_padding, enum tiled_matmul_type_t tiled_conv_type) {
    const struct tw_conv it = {
        batch_size, in_row_dim, in_col_dim, in_channels, out_channels, out_row_dim, out_col_dim, stride,
        input_dilation, kernel_dilation, padding, kernel_dim, in_stride, weight_stride, out_stride, wrot180,
        trans_output_1203, trans_input_3120, trans_weight_1203, trans_weight_0132, false, input, weights, bias};
    const struct tw_tile tile = {batches, porows, pocols, pochs, krows, kcols, kchs};
    tw_conv_run(&it, tile, output, act, scale, pool_size, pool_stride, pool_padding, tiled_conv_type);
}

static TW_UNUSED void tiled_conv_stride_auto(
    int batch_size, int in_row_dim, int in_col_dim, int in_channels, int out_channels, int out_row_dim,
    int out_col_dim, int stride, int input_dilation, int kernel_dilation, int padding, int kernel_dim, int in_stride,
    int weight_stride, int out_stride, bool wrot180, bool trans_output_1203, bool trans_input_3120,
    bool trans_weight_1203, bool trans_weight_0132, const elem_t *input, const elem_t *weights, const acc_t *bias,
    elem_t *output, int act, acc_scale_t scale, int pool_size, int pool_stride, int pool_padding,
    enum tiled_matmul_type_t tiled_conv_type) {
    const struct tw_conv it = {
        batch_size, in_row_dim, in_col_dim, in_channels, out_channels, out_row_dim, out_col_dim, stride,
        input_dilation, kernel_dilation, padding, kernel_dim, in_stride, weight_stride, out_stride, wrot180,
        trans_output_1203, trans_input_3120, trans_weight_1203, trans_weight_0132, false, input, weights, bias};
    tw_conv_auto(&it, output, act, scale, pool_size, pool_stride, pool_padding, tiled_conv_type);
}

static TW_UNUSED void tiled_conv_auto(
    int batch_size, int in_row_dim, int in_col_dim, int in_channels, int out_channels, int out_row_dim,
    int out_col_dim, int stride, int input_dilation, int kernel_dilation, int padding, int kernel_dim, bool wrot180,
    bool trans_output_1203, bool trans_input_3120, bool trans_weight_1203, bool trans_weight_0132,
    const elem_t *input, const elem_t *weights, const acc_t *bias, elem_t *output, int act, acc_scale_t scale,
    int pool_size, int pool_stride, int pool_padding, enum tiled_matmul_type_t tiled_conv_type) {
    tiled_conv_stride_auto(
        batch_size, in_row_dim, in_col_dim, in_channels, out_channels, out_row_dim, out_col_dim, stride,
        input_dilation, kernel_dilation, padding, kernel_dim, in_channels, out_channels, out_channels, wrot180,
        trans_output_1203, trans_input_3120, trans_weight_1203, trans_weight_0132, input, weights, bias, output, act,
        scale, pool_size, pool_stride, pool_padding, tiled_conv_type);
}

/* A convolution with a kernel of one pixel and stride 2, row by row as products. */
static TW_UNUSED void tiled_conv_downsample(
    int batch_size, int in_row_dim, int in_col_dim, int in_channels, int out_channels, int out_row_dim,
    int out_col_dim, int in_stride, int weight_stride, int out_stride, const elem_t *input, const elem_t *weights,
    const acc_t *bias, elem_t *output, int act, acc_scale_t scale, enum tiled_matmul_type_t tiled_conv_type) {
    if (in_row_dim != in_col_dim || out_row_dim != out_col_dim)
        tw_exit("tiled_conv_downsample: the image must be a square");
    for (int b = 0; b < batch_size; b++)
        for (int row = 0; row < in_row_dim; row += 2) {
            const elem_t *from = input + (b * in_row_dim + row) * in_row_dim * in_stride;
            elem_t *to = output + (b * out_row_dim + row / 2) * out_row_dim * out_stride;
            tiled_matmul_auto(
                in_col_dim / 2, out_channels, in_channels, from, weights, bias, to, in_stride * 2, weight_stride,
                out_stride, out_stride, MVIN_SCALE_IDENTITY, MVIN_SCALE_IDENTITY, MVIN_SCALE_IDENTITY, act, scale, 0,
                true, false, false, false, false, 0, tiled_conv_type);
        }
}

static inline struct tw_conv tw_depthwise(
    int batch_size, int in_row_dim, int in_col_dim, int channels, int out_row_dim, int out_col_dim, int stride,
    int padding, int kernel_dim, const elem_t *input, const elem_t *weights, const acc_t *bias) {
    const struct tw_conv made = {
        batch_size, in_row_dim, in_col_dim, channels, channels, out_row_dim, out_col_dim, stride, 1, 1, padding,
        kernel_dim, channels, 1, channels, false, false, false, false, false, true, input, weights, bias};
    return made;
}

static TW_UNUSED void tiled_conv_dw(
    int batch_size, int in_row_dim, int in_col_dim, int channels, int out_row_dim, int out_col_dim, int stride,
    int padding, int kernel_dim, int batches, int porows, int pocols, int krows, int kcols, const elem_t *input,
    const elem_t *weights, const acc_t *bias, elem_t *output, int act, acc_scale_t scale, int pool_size,
    int pool_stride, int pool_padding, enum tiled_matmul_type_t tiled_conv_type) {
    const struct tw_conv it = tw_depthwise(
        batch_size, in_row_dim, in_col_dim, channels, out_row_dim, out_col_dim, stride, padding, kernel_dim, input,
        weights, bias);
    const struct tw_tile tile = {batches, porows, pocols, 1, krows, kcols, 1};
    tw_conv_run(&it, tile, output, act, scale, pool_size, pool_stride, pool_padding, tiled_conv_type);
}

static TW_UNUSED void tiled_conv_dw_auto(
    int batch_size, int in_row_dim, int in_col_dim, int channels, int out_row_dim, int out_col_dim, int stride,
    int padding, int kernel_dim, elem_t *input, elem_t *weights, acc_t *bias, elem_t *output, int act,
    acc_scale_t scale, int pool_size, int pool_stride, int pool_padding, enum tiled_matmul_type_t tiled_conv_type) {
    const struct tw_conv it = tw_depthwise(
        batch_size, in_row_dim, in_col_dim, channels, out_row_dim, out_col_dim, stride, padding, kernel_dim, input,
        weights, bias);
    tw_conv_auto(&it, output, act, scale, pool_size, pool_stride, pool_padding, tiled_conv_type);
}

#define tiled_conv(...) TW_HERE(tiled_conv(__VA_ARGS__))
#define tiled_conv_stride_auto(...) TW_HERE(tiled_conv_stride_auto(__VA_ARGS__))
#define tiled_conv_auto(...) TW_HERE(tiled_conv_auto(__VA_ARGS__))
#define tiled_conv_downsample(...) TW_HERE(tiled_conv_downsample(__VA_ARGS__))
#define tiled_conv_dw(...) TW_HERE(tiled_conv_dw(__VA_ARGS__))
#define tiled_conv_dw_auto(...) TW_HERE(tiled_conv_dw_auto(__VA_ARGS__))

#endif
