/* Residual additions, averages and normalisations. */
#ifndef TILEWRIGHT_GEMMINI_OTHERS_H
#define TILEWRIGHT_GEMMINI_OTHERS_H

static TW_UNUSED void tiled_resadd(
    const size_t I, const size_t J, const size_t stride, const size_t tile_I, const size_t tile_J,
    const scale_t A_scale, const scale_t B_scale, const acc_scale_t C_scale, const elem_t *A, const elem_t *B,
    elem_t *C, bool relu, enum tiled_matmul_type_t matadd_type) {
    (void)matadd_type;
    gemmini_extended_config_st(stride * sizeof(elem_t), relu ? RELU : NO_ACTIVATION, C_scale);
    gemmini_config_ex(WS, 0, 0);
    gemmini_extended4_config_ld(stride * sizeof(elem_t), A_scale, true, DIM, 0);
    gemmini_extended4_config_ld(stride * sizeof(elem_t), B_scale, true, DIM, 1);
    for (size_t i = 0; i < I; i += tile_I)
        for (size_t j = 0; j < J; j += tile_J) {
            const size_t rows = TW_MIN(tile_I, I - i), cols = TW_MIN(tile_J, J - j), at = i * stride + j;
            const size_t high = TW_BLOCKS(rows), wide = TW_BLOCKS(cols);
            gemmini_loop_ws(
                high, wide, 0, high * DIM - rows, wide * DIM - cols, 0, A + at, B + at, NULL, C + at, stride, stride, 0,
                stride, false, false, false, false, false, relu, 0, 0, true);
        }
    gemmini_fence();
}

/* Half of the accumulator holds a tile: halve its rows, or take a block of columns off. */
static TW_UNUSED void tiled_resadd_stride_auto(
    const size_t I, const size_t J, const scale_t A_scale, const scale_t B_scale, const acc_scale_t C_scale,
    const size_t stride, const elem_t *A, const elem_t *B, elem_t *C, bool relu,
    enum tiled_matmul_type_t matadd_type) {
    if (matadd_type == CPU) {
        resadd_cpu(I, J, stride, A_scale, B_scale, C_scale, A, B, C, relu);
        return;
    }
    if (matadd_type != WS) tw_exit("tiled_resadd: residual additions are weight-stationary");
    size_t rows = I, cols = J;
    while (TW_BLOCKS(rows) * DIM * TW_BLOCKS(cols) > ACC_ROWS / 2) {
        if (rows >= cols || cols <= DIM) {
            rows /= 2;
        } else {
            cols -= DIM;
        }
    }
    tiled_resadd(I, J, stride, rows, cols, A_scale, B_scale, C_scale, A, B, C, relu, matadd_type);
}

static TW_UNUSED void tiled_resadd_auto(
    const size_t I, const size_t J, const scale_t A_scale, const scale_t B_scale, const acc_scale_t C_scale,
    const elem_t *A, const elem_t *B, elem_t *C, bool relu, enum tiled_matmul_type_t matadd_type) {
    tiled_resadd_stride_auto(I, J, A_scale, B_scale, C_scale, J, A, B, C, relu, matadd_type);
}

/* Add the pixels of each channel in the accumulator, and scale the sum on the way out. It ends without a fence. */
static TW_UNUSED void tiled_global_average(
    const elem_t *input, elem_t *output, int batches, int channels, int dim, int channel_tile_size) {
    const uint32_t acc = (uint32_t)1 << 31, add = (uint32_t)1 << 30;
    gemmini_extended4_config_ld(DIM * sizeof(elem_t), MVIN_SCALE_IDENTITY, true, 1, 0);
    gemmini_config_ex(0, NO_ACTIVATION, 0);
    gemmini_extended_config_st(0, NO_ACTIVATION, 1.0 / (dim * dim));
    for (int batch = 0; batch < batches; batch++)
        for (int tile = 0; tile < channels; tile += channel_tile_size) {
            const int size = TW_MIN(channel_tile_size, channels - tile);
            const int wide = TW_MIN(TW_BLOCKS(size), MAX_BLOCK_LEN) * DIM;
            const elem_t *in = input + batch * dim * dim * channels + tile;
            elem_t *out = output + batch * channels + tile;
            for (int channel = 0; channel < size; channel += wide)
                for (int pixel = 0; pixel < dim * dim; pixel++) {
                    const uint32_t row = acc + channel / DIM + (pixel ? add : 0);
                    gemmini_extended_mvin(in + pixel * channels + channel, row, TW_MIN(wide, size - channel), 1);
                }
            for (int channel = 0; channel < size; channel += DIM) {
                gemmini_extended_mvout(out + channel, acc + channel / DIM, TW_MIN(DIM, size - channel), 1);
            }
        }
}

static TW_UNUSED void tiled_global_average_auto(
    const elem_t *input, elem_t *output, int batches, int channels, int dim, enum tiled_matmul_type_t type) {
    if (type == CPU) {
        global_average_cpu(input, output, batches, channels, dim);
    } else {
        tiled_global_average(input, output, batches, channels, dim, TW_MIN(channels, ACC_ROWS * DIM));
    }
}

#ifdef HAS_NORMALIZATIONS
/* One pass of the normaliser over a row: the commands for all blocks but the last, and for the last one. */
static inline void tw_norm_row(elem_t *out, uint32_t row, size_t J, size_t wide, uint32_t each, uint32_t last) {
    for (size_t j = 0; j < J; j += wide) {
        const uint32_t command = j + wide >= J ? last : each;
        gemmini_extended_mvout(out + j, (row + j) | command << 26, TW_MIN(wide, J - j), 1);
    }
}
#endif

static TW_UNUSED void tiled_norm(
    const size_t I, const size_t J, const size_t tile_I, const size_t tile_J, const acc_t *in, elem_t *out,
    const acc_scale_t C_scale, int act, enum tiled_matmul_type_t norm_type) {
    (void)norm_type;
#ifdef HAS_NORMALIZATIONS
    if (tile_J < J) tw_exit("tiled_norm: a row must be one tile");
    gemmini_extended_config_st(J * sizeof(elem_t), act & 3, C_scale);
    gemmini_config_ex(WS, 0, 0);
    gemmini_extended4_config_ld(J * sizeof(acc_t), MVIN_SCALE_IDENTITY, false, DIM, 0);
    gemmini_extended4_config_ld(J * sizeof(acc_t), MVIN_SCALE_IDENTITY, false, DIM, 1);
    if (act == SOFTMAX) {
        const struct tw_softmax k = tw_softmax_of(0.05);
        gemmini_config_norm(k.ln2, 0, 0, 1, 0, k.b, k.c);
        gemmini_config_norm(k.inverse, 1, 0, 1, 0, k.b, k.c);
    }
    /* A layer normalisation adds up, finds the mean, adds up squares, finds the deviation; a softmax finds the largest
     * value and the sum of exp. The last pass moves out. */
    static const uint32_t passes[2][3][2] = {{{1, 2}, {3, 4}, {0, 0}}, {{5, 5}, {6, 7}, {0, 0}}};
    const uint32_t acc = (uint32_t)1 << (ADDR_LEN - 1), from = (uint32_t)3 << (ADDR_LEN - 2);
    const size_t loaded = TW_MIN(TW_BLOCKS(J), MAX_BLOCK_LEN_ACC) * DIM, moved = TW_MIN(TW_BLOCKS(J), MAX_BLOCK_LEN) * DIM;
    for (size_t tile = 0; tile < I; tile += tile_I) {
        const size_t end = TW_MIN(tile + tile_I, I);
        for (size_t i = tile; i < end; i += DIM) {
            const size_t rows = TW_MIN(DIM, end - i), place = (i - tile) * TW_BLOCKS(J);
            for (size_t j = 0; j < J; j += loaded) {
                gemmini_extended_mvin(in + i * J + j, acc + place + j, TW_MIN(loaded, J - j), rows);
            }
            for (size_t row = 0; row < rows; row += NORM_STAT_IDS)
                for (int pass = 0; pass < 3; pass++)
                    for (size_t id = 0; id < TW_MIN(NORM_STAT_IDS, rows - row); id++) {
                        const uint32_t *commands = passes[act == SOFTMAX][pass];
                        gemmini_config_norm(0, 0, act == SOFTMAX, 0, id, 0, 0);
                        tw_norm_row(out + (i + row + id) * J, from + place + row + id, J, moved, commands[0], commands[1]);
                    }
        }
    }
    gemmini_fence();
#else
    (void)I, (void)J, (void)tile_I, (void)tile_J, (void)in, (void)out, (void)C_scale, (void)act;
    tw_exit("tiled_norm: this machine has no normaliser (normaliser=1)");
#endif
}

static TW_UNUSED void tiled_norm_auto(
    const size_t I, const size_t J, const acc_t *in, elem_t *out, const acc_scale_t C_scale, int act,
    enum tiled_matmul_type_t norm_type) {
    size_t rows = I;
    while (rows && TW_BLOCKS(rows) * DIM * TW_BLOCKS(J) > ACC_ROWS) rows--;
    if (!rows) tw_exit("tiled_norm_auto: a row does not fit the accumulator");
    if (norm_type == OS) tw_exit("tiled_norm_auto: normalisations are weight-stationary");
    tiled_norm(I, J, rows, J, in, out, C_scale, act, norm_type);
}

#define tiled_resadd(...) TW_HERE(tiled_resadd(__VA_ARGS__))
#define tiled_resadd_stride_auto(...) TW_HERE(tiled_resadd_stride_auto(__VA_ARGS__))
#define tiled_resadd_auto(...) TW_HERE(tiled_resadd_auto(__VA_ARGS__))
#define tiled_global_average(...) TW_HERE(tiled_global_average(__VA_ARGS__))
#define tiled_global_average_auto(...) TW_HERE(tiled_global_average_auto(__VA_ARGS__))
#define tiled_norm(...) TW_HERE(tiled_norm(__VA_ARGS__))
#define tiled_norm_auto(...) TW_HERE(tiled_norm_auto(__VA_ARGS__))

#endif
