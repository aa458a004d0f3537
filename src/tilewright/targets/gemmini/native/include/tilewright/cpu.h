/* The functions of gemmini.h that compute on the CPU, and the arithmetic that they share. */
#ifndef TILEWRIGHT_GEMMINI_CPU_H
#define TILEWRIGHT_GEMMINI_CPU_H

#define TW_UNUSED __attribute__((unused))
#define TW_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TW_BLOCKS(n) (((n) + DIM - 1) / DIM)

static inline void tw_exit(const char *reason) {
    printf("%s\n", reason);
    exit(1);
}

/* The square root of an integer, by Newton's method, rounded down. */
static TW_UNUSED acc_t int_sqrt(acc_t n) {
    int bits = 0;
    if (n == 0) return 0;
    while (bits < 31 && n >> bits) bits++;
    for (acc_t x = (acc_t)1 << ((bits + 1) / 2);;) {
        acc_t next = (x + n / x) / 2;
        if (next >= x) return x;
        x = next;
    }
}

/* The constants of I-BERT for a scale of its input: i-gelu is q * (sign(q) * ((min(|q|, -b) + b)^2 + c) + 1 / S_erf). */
#define TW_SQRT_2 ((acc_scale_t)1.41421356237)
#define TW_ERF(S) ((acc_scale_t)(-0.2888 * ((S) / TW_SQRT_2) * ((S) / TW_SQRT_2)))
static inline acc_t tw_gelu_b(acc_scale_t S) { return -1.769 / (S / TW_SQRT_2); }
static inline acc_t tw_gelu_c(acc_scale_t S) { return 1.0 / (-0.2888 * ((S * S) / 2)); }

/* The constants of its softmax: ln 2, 2^16 / ln 2, and those of the polynomial of exp, in units of the scale. */
struct tw_softmax { acc_t ln2, inverse, b, c; };
static inline struct tw_softmax tw_softmax_of(acc_scale_t S) {
    struct tw_softmax made;
    const scale_t a = 0.3585, b = 1.353, c = 0.344;
    made.ln2 = (acc_t)(0.693147 / S);
    made.inverse = 65536 / made.ln2;
    made.b = b / S;
    made.c = c / (a * S * S);
    return made;
}

static elem_t scale_and_sat(acc_t x, int act, acc_scale_t scale, acc_scale_t bert_scale) {
    if (act == IGELU) {
        const acc_t b = tw_gelu_b(bert_scale), c = 1.0 / TW_ERF(bert_scale), one = 1 / TW_ERF(bert_scale);
        const acc_t size = TW_MIN(x < 0 ? -x : x, -b);
        const acc_t erf = (x < 0 ? -1 : 1) * ((size + b) * (size + b) + c);
        x *= erf + one;
    }
    x = ACC_SCALE(x, scale);
    if (x > elem_t_max) x = elem_t_max;
    if (x < elem_t_min) x = elem_t_min;
    return act == RELU && x < 0 ? 0 : x;
}

/* Normalise a row of sums: layer normalisation, or softmax. Returns the scale of its output. */
static inline acc_scale_t tw_normalise(acc_t *row, size_t n, int act, acc_scale_t scale, acc_scale_t bert_scale) {
    if (act == LAYERNORM) {
        acc_t sum = 0, square = 0;
        for (size_t j = 0; j < n; j++) sum += row[j];
        const acc_t mean = sum / (acc_t)n;
        for (size_t j = 0; j < n; j++) square += (row[j] - mean) * (row[j] - mean);
        const acc_t variance = square / (acc_t)n, deviation = variance ? int_sqrt(variance) : 1;
        for (size_t j = 0; j < n; j++) row[j] = ROUND_NEAR_EVEN((double)(row[j] - mean) / deviation);
        return scale;
    }
    const struct tw_softmax k = tw_softmax_of(bert_scale);
    acc_t largest = INT32_MIN, sum = 0;
    for (size_t j = 0; j < n; j++) largest = row[j] > largest ? row[j] : largest;
    for (size_t j = 0; j < n; j++) {
        const acc_t q = row[j] - largest, z = (acc_t)(-q * k.inverse) >> 16, rest = q + z * k.ln2;
        row[j] = ((rest + k.b) * (rest + k.b) + k.c) >> z;
        sum += row[j];
    }
    return 127.f / (float)sum;
}

static TW_UNUSED void matmul_cpu(
    bool transA, bool transB, size_t DIM_I, size_t DIM_J, size_t DIM_K, const elem_t *A, const elem_t *B,
    const acc_t *D, elem_t *C, size_t stride_A, size_t stride_B, size_t stride_D, size_t stride_C,
    scale_t A_scale_factor, scale_t B_scale_factor, scale_acc_t D_scale_factor, int act, acc_scale_t scale,
    acc_scale_t bert_scale, bool repeating_bias) {
    const bool normalises = act == LAYERNORM || act == SOFTMAX;
    acc_t *row = malloc((DIM_J + 1) * sizeof *row);
    if (!row) tw_exit("matmul_cpu: there is no memory for a row");
    for (size_t i = 0; i < DIM_I; i++) {
        for (size_t j = 0; j < DIM_J; j++) {
            row[j] = D ? MVIN_SCALE_ACC(D[(repeating_bias ? 0 : i) * stride_D + j], D_scale_factor) : 0;
            for (size_t k = 0; k < DIM_K; k++) {
                const elem_t a = transA ? A[k * stride_A + i] : A[i * stride_A + k];
                const elem_t b = transB ? B[j * stride_B + k] : B[k * stride_B + j];
                row[j] += MVIN_SCALE(a, A_scale_factor) * MVIN_SCALE(b, B_scale_factor);
            }
        }
        const acc_scale_t out = normalises ? tw_normalise(row, DIM_J, act, scale, bert_scale) : scale;
        for (size_t j = 0; j < DIM_J; j++) C[i * stride_C + j] = scale_and_sat(row[j], act, out, bert_scale);
    }
    free(row);
}

/* A convolution: sizes, layouts and data. `dw`: each channel has a kernel of its own, [channel][row][column]. */
struct tw_conv {
    int batches, in_rows, in_cols, in_channels, out_channels, out_rows, out_cols;
    int stride, input_dilation, kernel_dilation, padding, kernel_dim, in_stride, weight_stride, out_stride;
    bool wrot180, out_1203, in_3120, weight_1203, weight_0132, dw;
    const elem_t *input, *weights;
    const acc_t *bias;
};

/* One pixel of a channel of the result, before its scale. */
static inline acc_t tw_pixel(const struct tw_conv *it, int batch, int orow, int ocol, int och) {
    acc_t sum = it->bias ? it->bias[och] : 0;
    const int size = it->kernel_dim, last = size - 1;
    for (int krow = 0; krow < size; krow++) {
        const int y = orow * it->stride + krow * it->kernel_dilation - it->padding, irow = y / it->input_dilation;
        if (y < 0 || y % it->input_dilation || irow >= it->in_rows) continue;
        for (int kcol = 0; kcol < size; kcol++) {
            const int x = ocol * it->stride + kcol * it->kernel_dilation - it->padding, icol = x / it->input_dilation;
            if (x < 0 || x % it->input_dilation || icol >= it->in_cols) continue;
            const int wrow = it->wrot180 ? last - krow : krow, wcol = it->wrot180 ? last - kcol : kcol;
            for (int c = it->dw ? och : 0; c < (it->dw ? och + 1 : it->in_channels); c++) {
                const size_t pixel = it->in_3120 ? ((size_t)c * it->in_rows + irow) * it->in_cols + icol
                                                 : ((size_t)batch * it->in_rows + irow) * it->in_cols + icol;
                const elem_t in = it->in_3120 ? it->input[pixel * it->batches + batch]
                                              : it->input[pixel * it->in_stride + c];
                const size_t tap = (size_t)wrow * size + wcol;
                const elem_t weight =
                    it->dw            ? it->weights[((size_t)och * size + wrow) * size + wcol]
                    : it->weight_1203 ? it->weights[((size_t)c * size * size + tap) * it->out_channels + och]
                    : it->weight_0132 ? it->weights[(tap * it->out_channels + och) * it->in_channels + c]
                                      : it->weights[(tap * it->in_channels + c) * it->weight_stride + och];
                sum += in * weight;
            }
        }
    }
    return sum;
}

/* Convolve, and pool unless `pool_stride` is 0. Pixels outside of the result count as 0 in a pool. */
static TW_UNUSED void tw_conv_cpu(
    const struct tw_conv *it, elem_t *output, int act, acc_scale_t scale, int pool_size, int pool_stride,
    int pool_padding) {
    if (!pool_stride) pool_size = pool_stride = 1, pool_padding = 0;
    const int rows = (it->out_rows + 2 * pool_padding - pool_size) / pool_stride + 1;
    const int cols = (it->out_cols + 2 * pool_padding - pool_size) / pool_stride + 1;
    for (int b = 0; b < it->batches; b++)
        for (int row = 0; row < rows; row++)
            for (int col = 0; col < cols; col++)
                for (int och = 0; och < it->out_channels; och++) {
                    elem_t most = elem_t_min;
                    for (int y = row * pool_stride - pool_padding, ey = y + pool_size; y < ey; y++)
                        for (int x = col * pool_stride - pool_padding, ex = x + pool_size; x < ex; x++) {
                            const bool inside = y >= 0 && y < it->out_rows && x >= 0 && x < it->out_cols;
                            const elem_t one = inside ? scale_and_sat(tw_pixel(it, b, y, x, och), act, scale, 0) : 0;
                            if (one > most) most = one;
                        }
                    const size_t pixel = it->out_1203 ? ((size_t)row * cols + col) * it->batches + b
                                                      : ((size_t)b * rows + row) * cols + col;
                    output[pixel * (it->out_1203 ? it->out_channels : it->out_stride) + och] = most;
                }
}

static TW_UNUSED void resadd_cpu(
    const size_t I, const size_t J, const size_t stride, const scale_t A_scale, const scale_t B_scale,
    const acc_scale_t C_scale, const elem_t *A, const elem_t *B, elem_t *C, bool relu) {
    for (size_t i = 0; i < I; i++)
        for (size_t j = 0; j < J; j++) {
            const size_t at = i * stride + j;
            const acc_t sum = MVIN_SCALE(A[at], A_scale) + MVIN_SCALE(B[at], B_scale);
            C[at] = scale_and_sat(sum, relu ? RELU : NO_ACTIVATION, C_scale, 0);
        }
}

/* The mean of each channel, rounded half up. */
static TW_UNUSED void global_average_cpu(const elem_t *input, elem_t *output, int batches, int channels, int dim) {
    const int count = dim * dim;
    for (int batch = 0; batch < batches; batch++)
        for (int channel = 0; channel < channels; channel++) {
            acc_t sum = 0;
            for (int pixel = 0; pixel < count; pixel++)
                sum += input[((size_t)batch * count + pixel) * channels + channel];
            output[(size_t)batch * channels + channel] = (sum + count / 2) / count;
        }
}

#endif
