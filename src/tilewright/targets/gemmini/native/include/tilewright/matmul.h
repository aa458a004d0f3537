/* Matrix products in tiles, by LOOP_WS or by single commands (output-stationary). Sizes of tiles count blocks. */
#ifndef TILEWRIGHT_GEMMINI_MATMUL_H
#define TILEWRIGHT_GEMMINI_MATMUL_H

/* One tile, output-stationary: A, B and D lie where LOOP_WS has them, and C over D. */
static TW_UNUSED void sp_tiled_matmul_os(
    const elem_t *A, const elem_t *B, const void *D, void *C, scale_t A_scale_factor, scale_t B_scale_factor,
    scale_acc_t D_scale_factor, size_t I, size_t J, size_t K, size_t pad_I, size_t pad_J, size_t pad_K,
    size_t A_row_stride, size_t B_row_stride, size_t D_row_stride, size_t C_row_stride, bool a_transpose,
    bool b_transpose, bool full_C, bool low_D, bool no_bias, bool repeating_bias, int act, int a_spad_id,
    int b_spad_id) {
    const uint32_t b_start = BANK_NUM * BANK_ROWS - K * J * DIM, d_start = (uint32_t)1 << (ADDR_LEN - 1);
    const uint32_t c_start = (uint32_t)3 << (ADDR_LEN - 2) | (uint32_t)full_C << (ADDR_LEN - 3);
    (void)a_transpose, (void)b_transpose, (void)low_D, (void)act, (void)a_spad_id, (void)b_spad_id;
#define TW_ROWS(i) (DIM - ((i) == I - 1 ? pad_I : 0))
#define TW_COLS(j, blocks) ((blocks) * DIM - ((j) + (blocks) >= J ? pad_J : 0))
#define TW_DEPTH(k, blocks) ((blocks) * DIM - ((k) + (blocks) >= K ? pad_K : 0))
    if (D && !no_bias) {
        const size_t most = TW_MIN(J, MAX_BLOCK_LEN_ACC);
        gemmini_extended_config_ld(repeating_bias ? 0 : D_row_stride * sizeof(acc_t), D_scale_factor);
        for (size_t i = 0; i < I; i++)
            for (size_t j = 0; j < J; j += most) {
                const size_t blocks = TW_MIN(most, J - j), row = repeating_bias ? 0 : i;
                const acc_t *const from = (const acc_t *)D + (row * D_row_stride + j) * DIM;
                gemmini_extended_mvin(from, d_start + (i * J + j) * DIM, TW_COLS(j, blocks), TW_ROWS(i));
            }
    }
    const size_t wide = TW_MIN(J, MAX_BLOCK_LEN), deep = TW_MIN(K, MAX_BLOCK_LEN);
    gemmini_extended_config_ld(B_row_stride * sizeof(elem_t), B_scale_factor);
    for (size_t j = 0; j < J; j += wide)
        for (size_t k = 0; k < K; k++) {
            const size_t blocks = TW_MIN(wide, J - j);
            const elem_t *const from = B + (k * B_row_stride + j) * DIM;
            gemmini_extended_mvin(from, b_start + (k * J + j) * DIM, TW_COLS(j, blocks), TW_DEPTH(k, 1));
        }
    gemmini_extended_config_ld(A_row_stride * sizeof(elem_t), A_scale_factor);
    for (size_t i = 0; i < I; i++)
        for (size_t k = 0; k < K; k += deep) {
            const size_t blocks = TW_MIN(deep, K - k);
            const elem_t *const from = A + (i * A_row_stride + k) * DIM;
            gemmini_extended_mvin(from, (i * K + k) * DIM, TW_DEPTH(k, blocks), TW_ROWS(i));
        }
    for (size_t i = 0; i < I; i++)
        for (size_t j = 0; j < J; j++)
            for (size_t k = 0; k < K; k++) {
                const uint32_t a = (i * K + k) * DIM, b = b_start + (k * J + j) * DIM;
                uint32_t c = k == K - 1 ? c_start + (i * J + j) * DIM : GARBAGE_ADDR;
                if (no_bias && D && k == K - 1) c &= ~((uint32_t)1 << (ADDR_LEN - 2)); /* do not accumulate */
                gemmini_extended_preload(GARBAGE_ADDR, c, DIM, DIM, TW_COLS(j, 1), TW_ROWS(i));
                if (k == 0) {
                    gemmini_extended_compute_preloaded(
                        a, b, TW_DEPTH(k, 1), TW_ROWS(i), TW_COLS(j, 1), TW_DEPTH(k, 1));
                } else {
                    gemmini_extended_compute_accumulated(
                        a, b, TW_DEPTH(k, 1), TW_ROWS(i), TW_COLS(j, 1), TW_DEPTH(k, 1));
                }
            }
    if (!C) return;
    const size_t size = full_C ? sizeof(acc_t) : sizeof(elem_t);
    for (size_t i = 0; i < I; i++)
        for (size_t j = 0; j < J; j++) {
            char *const to = (char *)C + (i * C_row_stride + j) * DIM * size;
            gemmini_extended_mvout(to, c_start + (i * J + j) * DIM, TW_COLS(j, 1), TW_ROWS(i));
        }
#undef TW_ROWS
#undef TW_COLS
#undef TW_DEPTH
}

/* One tile, weight-stationary. */
static TW_UNUSED void sp_tiled_matmul_ws(
    const elem_t *A, const elem_t *B, const void *D, void *C, scale_t A_scale_factor, scale_t B_scale_factor,
    scale_acc_t D_scale_factor, size_t I, size_t J, size_t K, size_t pad_I, size_t pad_J, size_t pad_K,
    size_t A_row_stride, size_t B_row_stride, size_t D_row_stride, size_t C_row_stride, bool a_transpose,
    bool b_transpose, bool full_C, bool low_D, bool no_bias, bool repeating_bias, int act, int a_spad_id,
    int b_spad_id) {
    (void)A_scale_factor, (void)B_scale_factor, (void)D_scale_factor;
    gemmini_loop_ws(
        I, J, K, pad_I, pad_J, pad_K, A, B, no_bias ? NULL : D, C, A_row_stride, B_row_stride,
        repeating_bias ? 0 : D_row_stride, C_row_stride, a_transpose, b_transpose, full_C, low_D, !no_bias || !D, act,
        a_spad_id, b_spad_id, false);
}

static TW_UNUSED void tiled_matmul_outer(
    size_t dim_I, size_t dim_J, size_t dim_K, const elem_t *A, const elem_t *B, const void *D, void *C,
    size_t stride_A, size_t stride_B, size_t stride_D, size_t stride_C, scale_t A_scale_factor,
    scale_t B_scale_factor, scale_acc_t D_scale_factor, size_t tile_I, size_t tile_J, size_t tile_K, int act,
    acc_scale_t scale, acc_scale_t bert_scale, bool repeating_bias, bool a_transpose, bool b_transpose, bool full_C,
    bool low_D, uint8_t weightA, int dataflow) {
    (void)weightA;
    const size_t all_I = TW_BLOCKS(dim_I), all_J = TW_BLOCKS(dim_J), all_K = TW_BLOCKS(dim_K);
    const size_t size_D = low_D ? sizeof(elem_t) : sizeof(acc_t), size_C = full_C ? sizeof(acc_t) : sizeof(elem_t);
    const bool no_bias = !D, ws = dataflow == WEIGHT_STATIONARY;
    if (no_bias) D = (void *)1; /* so that the first tile overwrites the accumulator */

    gemmini_extended_config_ex(dataflow, act & 3, 0, 1, a_transpose, b_transpose);
    gemmini_extended_config_st(stride_C * size_C, act & 3, scale);
    gemmini_extended3_config_ld(stride_A * sizeof(elem_t), A_scale_factor, false, 0);
    gemmini_extended3_config_ld(stride_B * sizeof(elem_t), B_scale_factor, false, 1);
    gemmini_extended3_config_ld(repeating_bias ? 0 : stride_D * size_D, D_scale_factor, low_D, 2);
    if (act == IGELU) {
        gemmini_config_norm(0, 0, 0, 0, 0, tw_gelu_b(bert_scale), tw_gelu_c(bert_scale));
    }
    if (act == SOFTMAX) {
        const struct tw_softmax k = tw_softmax_of(bert_scale);
        gemmini_config_norm(k.ln2, 0, 0, 1, 0, k.b, k.c);
        gemmini_config_norm(k.inverse, 1, 0, 1, 0, k.b, k.c);
    }

    /* An operand of at most two tiles stays in the two halves of the scratchpad. */
    const size_t tiles_I = (all_I + tile_I - 1) / tile_I, tiles_J = (all_J + tile_J - 1) / tile_J;
    const size_t tiles_K = (all_K + tile_K - 1) / tile_K;
    const bool keep_A = ws && tiles_I * tiles_K <= 2, keep_B = ws && tiles_J * tiles_K <= 2;
    for (size_t i = 0; i < all_I; i += tile_I)
        for (size_t j = 0; j < all_J; j += tile_J)
            for (size_t k = 0; k < all_K; k += tile_K) {
                const size_t I = TW_MIN(tile_I, all_I - i), J = TW_MIN(tile_J, all_J - j), K = TW_MIN(tile_K, all_K - k);
                const size_t row = i * DIM, col = j * DIM, depth = k * DIM;
                const void *bias = k ? NULL : (char *)D + ((repeating_bias ? 0 : row) * stride_D + col) * size_D;
                void *out = k + K < all_K ? NULL : (char *)C + (row * stride_C + col) * size_C;
                const elem_t *a = a_transpose ? A + depth * stride_A + row : A + row * stride_A + depth;
                const elem_t *b = b_transpose ? B + col * stride_B + depth : B + depth * stride_B + col;
                if (keep_A && j) a = NULL;
                if (keep_B && i) b = NULL;
                (ws ? sp_tiled_matmul_ws : sp_tiled_matmul_os)(
                    a, b, bias, out, A_scale_factor, B_scale_factor, D_scale_factor, I, J, K,
                    i + I < all_I ? 0 : all_I * DIM - dim_I, j + J < all_J ? 0 : all_J * DIM - dim_J,
                    k + K < all_K ? 0 : all_K * DIM - dim_K, stride_A, stride_B, stride_D, stride_C, a_transpose,
                    b_transpose, full_C, low_D, no_bias, repeating_bias, act, keep_A ? (i || k ? 2 : 1) : 0,
                    keep_B ? (j || k ? 2 : 1) : 0);
            }
    gemmini_fence();
}

static inline size_t tiled_matmul_total_spad_rows(size_t I, size_t J, size_t K) { return (I * K + K * J) * DIM; }
static inline size_t tiled_matmul_total_acc_rows(size_t I, size_t J) { return I * J * DIM; }

/* A product in tiles of a given size. Exits if the machine cannot do them. */
static TW_UNUSED void tiled_matmul(
    size_t dim_I, size_t dim_J, size_t dim_K, const elem_t *A, const elem_t *B, const void *D, void *C,
    size_t stride_A, size_t stride_B, size_t stride_D, size_t stride_C, scale_t A_scale_factor,
    scale_t B_scale_factor, scale_acc_t D_scale_factor, int act, acc_scale_t scale, acc_scale_t bert_scale,
    bool repeating_bias, size_t tile_I, size_t tile_J, size_t tile_K, bool transpose_A, bool transpose_B, bool full_C,
    bool low_D, uint8_t weightA, enum tiled_matmul_type_t tiled_matmul_type) {
    if (tiled_matmul_type == CPU) {
        if (full_C || low_D) printf("tiled_matmul: the CPU computes neither full_C nor low_D\n");
        matmul_cpu(
            transpose_A, transpose_B, dim_I, dim_J, dim_K, A, B, (const acc_t *)D, (elem_t *)C, stride_A, stride_B,
            stride_D, stride_C, A_scale_factor, B_scale_factor, D_scale_factor, act, scale, bert_scale, repeating_bias);
        return;
    }
    const size_t parts = tiled_matmul_type == WS ? 2 : 1; /* LOOP_WS uses halves of the memories */
    const bool normalises = act == LAYERNORM || act == SOFTMAX;
    if (!tile_I || !tile_J || !tile_K) tw_exit("tiled_matmul: a tile is empty");
    if (tile_I > TW_BLOCKS(dim_I) || tile_J > TW_BLOCKS(dim_J) || tile_K > TW_BLOCKS(dim_K))
        tw_exit("tiled_matmul: a tile is larger than the matrices");
    if (tiled_matmul_total_spad_rows(tile_I, tile_J, tile_K) > BANK_NUM * BANK_ROWS / parts)
        tw_exit("tiled_matmul: the scratchpad is too small for A and B");
    if (tiled_matmul_total_acc_rows(tile_I, tile_J) > ACC_ROWS / parts)
        tw_exit("tiled_matmul: the accumulator is too small for C");
    if (tile_I > 65535 || tile_J > 65535 || tile_K > 65535) tw_exit("tiled_matmul: LOOP_WS takes 65535 blocks");
    if (tiled_matmul_type == OS ? transpose_A || transpose_B : transpose_A && transpose_B)
        tw_exit("tiled_matmul: this dataflow cannot transpose these operands");
    /* As upstream, go on after these. */
    if (tiled_matmul_type == OS && (low_D || normalises)) printf("tiled_matmul: OS has neither low_D nor normalisation\n");
    if (normalises && tile_J * DIM < dim_J) printf("tiled_matmul: a row that is normalised must be one tile\n");
    tiled_matmul_outer(
        dim_I, dim_J, dim_K, A, B, D, C, stride_A, stride_B, stride_D, stride_C, A_scale_factor, B_scale_factor,
        D_scale_factor, tile_I, tile_J, tile_K, act, scale, bert_scale, repeating_bias, transpose_A, transpose_B,
        full_C, low_D, weightA, (int)tiled_matmul_type);
}

/* A product in tiles that fill the memories: near squares of C first, then whatever still fits, J before I before K. */
static TW_UNUSED void tiled_matmul_auto(
    size_t dim_I, size_t dim_J, size_t dim_K, const elem_t *A, const elem_t *B, const void *D, void *C,
    size_t stride_A, size_t stride_B, size_t stride_D, size_t stride_C, scale_t A_scale_factor,
    scale_t B_scale_factor, scale_acc_t D_scale_factor, int act, acc_scale_t scale, acc_scale_t bert_scale,
    bool repeating_bias, bool transpose_A, bool transpose_B, bool full_C, bool low_D, uint8_t weightA,
    enum tiled_matmul_type_t tiled_matmul_type) {
    const size_t parts = tiled_matmul_type == WS ? 2 : 1;
    const size_t spad = BANK_NUM * BANK_ROWS / parts, acc = ACC_ROWS / parts;
    const size_t all_I = TW_BLOCKS(dim_I), all_J = TW_BLOCKS(dim_J), all_K = TW_BLOCKS(dim_K);
    const size_t side = (size_t)sqrt(acc / DIM), deep = spad / 2 / DIM / side;
    size_t I = TW_MIN(all_I, side), J = TW_MIN(all_J, side), K = TW_MIN(all_K, deep);
    if (act == LAYERNORM || act == SOFTMAX) I = K = 1, J = all_J;
    for (bool more = true; more;) {
        more = false;
#define TW_FITS(i, j, k) (tiled_matmul_total_spad_rows(i, j, k) <= spad && tiled_matmul_total_acc_rows(i, j) <= acc)
        if (J < all_J && TW_FITS(I, J + 1, K)) J++, more = true;
        if (I < all_I && TW_FITS(I + 1, J, K)) I++, more = true;
        if (K < all_K && TW_FITS(I, J, K + 1)) K++, more = true;
#undef TW_FITS
    }
    tiled_matmul(
        dim_I, dim_J, dim_K, A, B, D, C, stride_A, stride_B, stride_D, stride_C, A_scale_factor, B_scale_factor,
        D_scale_factor, act, scale, bert_scale, repeating_bias, I, J, K, transpose_A, transpose_B, full_C, low_D,
        weightA, tiled_matmul_type);
}

/* Commands in these functions have the place of the call. */
#define TW_HERE(call) ({ tw_gemmini_enter(__FILE__, __LINE__); call; tw_gemmini_leave(); })
#define tiled_matmul_outer(...) TW_HERE(tiled_matmul_outer(__VA_ARGS__))
#define tiled_matmul(...) TW_HERE(tiled_matmul(__VA_ARGS__))
#define tiled_matmul_auto(...) TW_HERE(tiled_matmul_auto(__VA_ARGS__))
#define sp_tiled_matmul_os(...) TW_HERE(sp_tiled_matmul_os(__VA_ARGS__))
#define sp_tiled_matmul_ws(...) TW_HERE(sp_tiled_matmul_ws(__VA_ARGS__))

#endif
