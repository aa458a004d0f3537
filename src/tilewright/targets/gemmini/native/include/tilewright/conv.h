/* Convolutions in tiles, by LOOP_CONV_WS. Inputs are NHWC, kernels HWIO, unless a flag says otherwise. */
#ifndef TILEWRIGHT_GEMMINI_CONV_H
#define TILEWRIGHT_GEMMINI_CONV_H

/* A tile: the parts of a convolution that one loop computes. Rows and columns are those behind the pool. */
struct tw_tile { int batches, porows, pocols, pochs, krows, kcols, kchs; };

/* How a convolution uses the memories. */
struct tw_shape {
    int stride, input_dilation, kernel_dilation, pool_size, pool_stride;
    bool downsample, weight_0132, input_3120;
};

static inline int tw_dilated(int size, int dilation) { return size + (dilation - 1) * (size - 1); }

/* Rows of the scratchpad, or of the accumulator, that a tile needs. */
static TW_UNUSED int tiled_conv_total_spad_rows(
    bool acc, int stride, int input_dilation, int kernel_dilation, bool downsample, bool trans_weight_0132,
    bool trans_input_3120, int batches, int porows, int pocols, int ochs, int krows, int kcols, int kchs,
    int pool_size, int pool_stride) {
    const int orows = porows * pool_stride + pool_size - 1, ocols = pocols * pool_stride + pool_size - 1;
    if (acc) return TW_BLOCKS(ochs) * batches * orows * ocols;
    const int rows = orows * stride + tw_dilated(krows, kernel_dilation) - 1;
    const int cols = ocols * stride + tw_dilated(kcols, kernel_dilation) - 1;
    const int irows = (rows + input_dilation - 1) / input_dilation >> downsample;
    const int icols = (cols + input_dilation - 1) / input_dilation >> downsample;
    const int images = trans_input_3120 ? TW_BLOCKS(batches) * kchs : TW_BLOCKS(kchs) * batches;
    const int kernels = trans_weight_0132 ? TW_BLOCKS(kchs) * ochs : TW_BLOCKS(ochs) * kchs;
    return images * irows * icols + kernels * krows * kcols;
}

static inline int tw_rows(const struct tw_shape *s, const struct tw_tile *t, bool acc) {
    return tiled_conv_total_spad_rows(
        acc, s->stride, s->input_dilation, s->kernel_dilation, s->downsample, s->weight_0132, s->input_3120,
        t->batches, t->porows, t->pocols, t->pochs, t->krows, t->kcols, t->kchs, s->pool_size, s->pool_stride);
}

/* Loops use halves of the memories. */
static inline bool tw_tile_fits(const struct tw_shape *s, const struct tw_tile *t) {
    return tw_rows(s, t, false) <= BANK_NUM * BANK_ROWS / 2 && tw_rows(s, t, true) <= ACC_ROWS / 2;
}

/* Shrink a tile until it fits, its largest size first; then let it grow again, columns first. Rows of the array hold
 * columns of the image: they stay at DIM while rows are left. */
static TW_UNUSED struct tw_tile tw_tile_of(const struct tw_shape *shape, struct tw_tile most) {
    enum { ROWS = 1, COLS = 2, OCHS = 3, KCHS = 6, SIZES = 7 };
    union { struct tw_tile tile; int size[SIZES]; } now = {most}, next, all = {most};
    while (!tw_tile_fits(shape, &now.tile)) {
        int at = -1;
        for (int i = 0; i < SIZES; i++) {
            const bool kept = i == COLS && now.size[i] <= DIM && now.size[ROWS] > 1;
            if (!kept && (at < 0 || now.size[i] > now.size[at])) at = i;
        }
        int *size = &now.size[at];
        if (*size <= 1) tw_exit("tiled_conv: no tile of this convolution fits the memories");
        if (at != OCHS && at != KCHS) {
            --*size;
        } else { /* whole blocks */
            *size = *size % DIM ? *size / DIM * DIM : *size - DIM;
            if (*size == 0) *size = 1;
        }
    }
    for (int phase = 0; phase < 2; phase++)
        for (bool grown = true; grown;) {
            grown = false;
            for (int i = phase ? 0 : COLS; i < (phase ? SIZES : COLS + 1); i++) {
                next = now;
                if (++next.size[i] > all.size[i] || !tw_tile_fits(shape, &next.tile)) continue;
                now = next;
                grown = true;
            }
        }
    return now.tile;
}

/* One tile. `dw`: one channel. */
static TW_UNUSED void sp_tiled_conv(
    int batch_size, int in_row_dim, int in_col_dim, int in_channels, int out_channels, int out_row_dim,
    int out_col_dim, int pool_out_row_dim, int pool_out_col_dim, int stride, int padding, int kernel_dim,
    int kernel_dilation, int in_stride, int weight_stride, int out_stride, int pool_size, int pool_stride,
    int pool_padding, int batches, int porows, int pocols, int pochs, int krows, int kcols, int kchs, int lpad,
    int rpad, int upad, int dpad, int plpad, int prpad, int pupad, int pdpad, const elem_t *input,
    const elem_t *weights, elem_t *output, const acc_t *bias, int act, acc_scale_t scale, bool wrot180,
    bool trans_output_1203, bool trans_input_3120, bool trans_weight_1203, bool trans_weight_0132, bool no_bias,
    bool no_pool, bool downsample, bool input_dilated, bool dw, int a_spad_id, int b_spad_id) {
    (void)scale;
    if (dw) kchs = pochs = 1;
    const int orows = porows * pool_stride + pool_size - 1 - pupad - pdpad;
    const int ocols = pocols * pool_stride + pool_size - 1 - plpad - prpad;
    /* The first layer of an image has few channels: a row of the array then holds several pixels. */
    int pixels = 1;
#ifdef HAS_FIRST_LAYER_OPTIMIZATIONS
    const bool plain = !(
        trans_output_1203 || trans_input_3120 || trans_weight_1203 || trans_weight_0132 || wrot180 || downsample
        || input_dilated || kernel_dilation > 1);
    if (plain && kchs <= DIM) pixels = DIM / kchs;
#endif
    if (pixels > kcols) pixels = kcols;
    gemmini_loop_conv_ws(
        batch_size, in_row_dim, in_col_dim, in_channels, out_channels, out_row_dim, out_col_dim, pool_out_row_dim,
        pool_out_col_dim, stride, padding, kernel_dim, kernel_dilation, pool_size, pool_stride, pool_padding, batches,
        porows, pocols, pochs, krows, kcols, kchs, lpad, rpad, upad, dpad, plpad, prpad, pupad, pdpad, orows, ocols,
        weights, output, bias, input, no_bias, no_pool, downsample, wrot180, input_dilated, act, trans_output_1203,
        trans_weight_1203, trans_weight_0132, trans_input_3120, pixels, in_stride, weight_stride, out_stride, dw,
        a_spad_id, b_spad_id);
}

static inline int tw_over(int end, int size) { return end > size ? end - size : 0; }

/* The tiles of a convolution, in order. `it` has the sizes and layouts, `tile` the largest tile. */
static TW_UNUSED void tw_conv_tiles(
    const struct tw_conv *it, struct tw_tile tile, elem_t *output, int act, acc_scale_t scale, int pool_size,
    int pool_stride, int pool_padding) {
    const bool no_pool = pool_stride == 0, dw = it->dw, dilated = it->input_dilation == 2;
    if (no_pool) pool_size = pool_stride = 1, pool_padding = 0;
    const int size = it->kernel_dim, in_channels = dw ? 1 : it->in_channels;
    const bool downsample = !dw && it->stride == 2 && size == 1 && it->in_rows % 2 == 0 && it->in_cols % 2 == 0
        && it->padding == 0 && no_pool && it->input_dilation == 1 && !it->in_3120;
    const struct tw_shape shape = {
        it->stride, it->input_dilation, it->kernel_dilation, pool_size, pool_stride, downsample, it->weight_0132,
        it->in_3120};
    if (!tw_tile_fits(&shape, &tile)) tw_exit("tiled_conv: the memories are too small for this tile");
    if (size <= it->padding) tw_exit("tiled_conv: the padding must be smaller than the kernel");
    if (it->input_dilation > 2) tw_exit("tiled_conv: only the CPU dilates inputs by more than 2");
    if (dilated && it->stride > 1) tw_exit("tiled_conv: a dilated input needs stride 1");
    if (it->out_1203 && !no_pool) tw_exit("tiled_conv: the layout out_1203 excludes pooling");
    if (it->in_3120 && it->weight_0132) tw_exit("tiled_conv: the layouts in_3120 and weight_0132 exclude each other");
    if (it->weight_1203 && it->weight_0132) tw_exit("tiled_conv: weights have one layout only");

    const int stored = it->out_1203 ? it->batches * it->out_channels : it->out_stride;
    gemmini_extended_config_st(stored * sizeof(elem_t), act, scale);
    gemmini_extended3_config_ex(
        WEIGHT_STATIONARY, 0, 0, 0, it->input_dilation, it->stride >> downsample, it->in_3120, it->weight_0132, false);

    const int rows = (it->out_rows + 2 * pool_padding - pool_size) / pool_stride + 1;
    const int cols = (it->out_cols + 2 * pool_padding - pool_size) / pool_stride + 1;
    const int height = tw_dilated(it->in_rows, it->input_dilation), width = tw_dilated(it->in_cols, it->input_dilation);
#define TW_TILES(all, part) (((all) + (part) - 1) / (part))
    const int deep = TW_TILES(in_channels, tile.kchs) * TW_TILES(size, tile.krows) * TW_TILES(size, tile.kcols);
    const int wide = TW_TILES(it->out_channels, tile.pochs);
    const int high = TW_TILES(it->batches, tile.batches) * TW_TILES(rows, tile.porows) * TW_TILES(cols, tile.pocols);
#undef TW_TILES
    /* Weights, or inputs, of at most two tiles stay in the two halves of the scratchpad. */
    const bool keep_B = !dw && deep * wide <= 2, keep_A = !dw && deep * high <= 2;
#define TW_EACH(i, all, part) for (int i = 0; i < (all); i += (part))
#define TW_PART(i, all, part) const int n_##i = TW_MIN(part, (all) - i)
    TW_EACH(b, it->batches, tile.batches) TW_EACH(row, rows, tile.porows) TW_EACH(col, cols, tile.pocols)
    TW_EACH(och, it->out_channels, tile.pochs) TW_EACH(krow, size, tile.krows) TW_EACH(kcol, size, tile.kcols)
    TW_EACH(kch, in_channels, tile.kchs) {
        TW_PART(b, it->batches, tile.batches);
        TW_PART(row, rows, tile.porows);
        TW_PART(col, cols, tile.pocols);
        TW_PART(och, it->out_channels, tile.pochs);
        TW_PART(krow, size, tile.krows);
        TW_PART(kcol, size, tile.kcols);
        TW_PART(kch, in_channels, tile.kchs);
        const int orow = row * pool_stride - pool_padding, ocol = col * pool_stride - pool_padding;
        const int orows = n_row * pool_stride + pool_size - 1, ocols = n_col * pool_stride + pool_size - 1;
        const int pupad = tw_over(0, orow), pdpad = tw_over(orow + orows, it->out_rows);
        const int plpad = tw_over(0, ocol), prpad = tw_over(ocol + ocols, it->out_cols);
        const int irow = (orow < 0 ? 0 : orow) * it->stride + krow * it->kernel_dilation - it->padding;
        const int icol = (ocol < 0 ? 0 : ocol) * it->stride + kcol * it->kernel_dilation - it->padding;
        const int irows = (orows - pupad - pdpad) * it->stride + tw_dilated(n_krow, it->kernel_dilation) - 1;
        const int icols = (ocols - plpad - prpad) * it->stride + tw_dilated(n_kcol, it->kernel_dilation) - 1;
        int upad = tw_over(0, irow), dpad = tw_over(irow + irows, height);
        int lpad = tw_over(0, icol), rpad = tw_over(icol + icols, width);
        if (dilated) { /* begin and end at a pixel that is not a zero between two */
            upad += upad == 0 && irow % 2 != 0;
            dpad += dpad == 0 && (irow + irows) % 2 != 1;
            lpad += lpad == 0 && icol % 2 != 0;
            rpad += rpad == 0 && (icol + icols) % 2 != 1;
        }
        const int y = (irow + upad) >> dilated, x = (icol + lpad) >> dilated;
        const int krow_ = it->wrot180 ? size - krow - n_krow : krow, kcol_ = it->wrot180 ? size - kcol - n_kcol : kcol;
        const int tap = krow_ * size + kcol_;
        const elem_t *weights = dw ? it->weights + (och * size + krow) * size + kcol
            : it->weight_1203      ? it->weights + (kch * size * size + tap) * it->out_channels + och
            : it->weight_0132      ? it->weights + (tap * it->out_channels + och) * it->in_channels + kch
                                   : it->weights + (tap * it->in_channels + kch) * it->weight_stride + och;
        const elem_t *input = it->in_3120
            ? it->input + ((kch * it->in_rows + y) * it->in_cols + x) * it->batches + b
            : it->input + ((b * it->in_rows + y) * it->in_cols + x) * it->in_stride + (dw ? och : kch);
        elem_t *out = it->out_1203 ? output + ((row * cols + col) * it->batches + b) * it->out_channels + och
                                   : output + ((b * rows + row) * cols + col) * it->out_stride + och;
        const bool first = krow + kcol + kch == 0;
        const bool last = krow + n_krow == size && kcol + n_kcol == size && kch + n_kch == in_channels;
        if (keep_B && b + row + col > 0) weights = NULL;
        if (keep_A && och > 0) input = NULL;
        const acc_t *bias = !first ? NULL : (it->bias ? it->bias : (const acc_t *)1) + och;
        sp_tiled_conv(
            it->batches, it->in_rows, it->in_cols, it->in_channels, it->out_channels, it->out_rows, it->out_cols, rows,
            cols, it->stride, it->padding, size, it->kernel_dilation, it->in_stride, it->weight_stride, it->out_stride,
            pool_size, pool_stride, pool_padding, n_b, n_row, n_col, n_och, n_krow, n_kcol, n_kch, lpad, rpad, upad,
            dpad, plpad, prpad, pupad, pdpad, input, weights, last ? out : NULL, bias, act, scale, it->wrot180,
            it->out_1203, it->in_3120, it->weight_1203, it->weight_0132, !it->bias, no_pool, downsample, dilated, dw,
            keep_A ? (first && b + row + col == 0 ? 1 : 2) : 0, keep_B ? (first && och == 0 ? 1 : 2) : 0);
    }
#undef TW_EACH
#undef TW_PART
}

/* Run a convolution in tiles of a given size, or on the CPU. */
static TW_UNUSED void tw_conv_run(
    const struct tw_conv *it, struct tw_tile tile, elem_t *output, int act, acc_scale_t scale, int pool_size,
    int pool_stride, int pool_padding, enum tiled_matmul_type_t type) {
    if (type == OS) tw_exit("tiled_conv: convolutions are weight-stationary");
    if (type == WS) tw_conv_tiles(it, tile, output, act, scale, pool_size, pool_stride, pool_padding);
    if (type == CPU) tw_conv_cpu(it, output, act, scale, pool_size, pool_stride, pool_padding);
}

/* Run a convolution in the tiles of `tw_tile_of`, or on the CPU. */
static TW_UNUSED void tw_conv_auto(
    const struct tw_conv *it, elem_t *output, int act, acc_scale_t scale, int pool_size, int pool_stride,
    int pool_padding, enum tiled_matmul_type_t type) {
    struct tw_tile tile = {0};
    if (type == WS) {
        const bool no_pool = pool_stride == 0;
        const int size = no_pool ? 1 : pool_size, step = no_pool ? 1 : pool_stride, pad = no_pool ? 0 : pool_padding;
        const bool downsample = !it->dw && it->stride == 2 && it->kernel_dim == 1 && it->padding == 0 && no_pool
            && it->in_rows % 2 == 0 && it->in_cols % 2 == 0;
        const struct tw_shape shape = {
            it->stride, it->input_dilation, it->kernel_dilation, size, step, downsample, it->weight_0132, it->in_3120};
        const struct tw_tile most = {
            it->batches, (it->out_rows + 2 * pad - size) / step + 1, (it->out_cols + 2 * pad - size) / step + 1,
            it->dw ? 1 : it->out_channels, it->kernel_dim, it->kernel_dim, it->dw ? 1 : it->in_channels};
        tile = tw_tile_of(&shape, most);
    }
    tw_conv_run(it, tile, output, act, scale, pool_size, pool_stride, pool_padding, type);
}

#endif
