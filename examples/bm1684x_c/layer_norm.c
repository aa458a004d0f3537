/* A float32 layer norm over rows of 1024 numbers: the commands of ../bm1684x_layer_norm.py, from C.
 *
 * y = (x - mean) / sqrt(variance + epsilon) * gamma + beta. Rows lie in lanes; every lane has a copy of gamma and beta.
 * Tiles of 128 rows are loaded and stored while others are computed.
 */
#include "tpu_kernel.h"

enum { TILE = 128, COLUMNS = 1024, SIDE = 16, TILE_BYTES = TILE * COLUMNS * 4 };

typedef struct {
    unsigned long long y, x, gamma, beta;
    int rows;
    float epsilon;
} __attribute__((packed)) param_t;

static const dim4 tile = {1, TILE, 1, COLUMNS}, one = {1, TILE, 1, 1};
static const padding_t no_padding = {0, 0, 0, 0};
static const dim2 ones = {1, 1};
static dim4 near, far;
static dim4 per_row, per_column; /* strides of one number per row, and of one row for all rows, in the shape of a tile */

static local_addr_t bank(int number) { return (local_addr_t)(number * (tpu_local_mem_size_per_npu() / tpu_bank_num())); }

/* The places in local memory: two tiles of x, two of y, work, and what the whole launch needs. */
static local_addr_t source(int step) { return bank(step % 2); }
static local_addr_t result(int step) { return bank(2 + step % 2); }
static local_addr_t centred(void) { return bank(4); }
static local_addr_t squares(void) { return bank(5); }
static local_addr_t folded(void) { return bank(6); }
static local_addr_t total(void) { return bank(7); }
static local_addr_t gamma_row(void) { return bank(8); }
static local_addr_t beta_row(void) { return bank(9); }

/* `total` = the mean of each row. Every sum is divided by the number of its terms. */
static void mean(local_addr_t x) {
    const dim4 split = {1, TILE, COLUMNS / SIDE, SIDE}, row = {1, TILE, 1, SIDE};
    const dim2 down = {COLUMNS / SIDE, 1}, across = {1, SIDE};
    const scalar_t first = {.f32 = 1.0f / (COLUMNS / SIDE)}, second = {.f32 = 1.0f / SIDE};
    tpu_bdc_fp_avg_pool2d(folded(), x, &split, &down, &no_padding, &ones, &ones, DT_FP32, first);
    tpu_bdc_fp_avg_pool2d(total(), folded(), &row, &across, &no_padding, &ones, &ones, DT_FP32, second);
}

static void compute(local_addr_t y, local_addr_t x, float epsilon) {
    const scalar_t added = {.f32 = epsilon};
    mean(x);
    tpu_bdc_fp_sub(centred(), x, total(), &tile, NULL, NULL, &per_row, DT_FP32);
    tpu_bdc_fp_mul(squares(), centred(), centred(), &tile, NULL, NULL, NULL, DT_FP32);
    mean(squares());
    tpu_bdc_fp_add_C(total(), total(), added, &one, NULL, NULL, DT_FP32);
    tpu_bdc_fp32_rsqrt(total(), total(), &one);
    tpu_bdc_fp_mul(y, centred(), total(), &tile, NULL, NULL, &per_row, DT_FP32);
    tpu_bdc_fp_mul(y, y, gamma_row(), &tile, NULL, NULL, &per_column, DT_FP32);
    tpu_bdc_fp_add(y, y, beta_row(), &tile, NULL, NULL, &per_column, DT_FP32);
}

static void prepare(const param_t *p) {
    const dim4 whole = {1, p->rows, 1, COLUMNS}, copies = {1, tpu_npu_num(), 1, COLUMNS};
    dim4 copy_stride, row_stride;
    const dim4 row = {1, 1, 1, COLUMNS};
    tpu_aligned_stride(&near, 0, &tile, DT_FP32);
    tpu_continuous_stride(&far, &whole);
    tpu_aligned_stride(&per_row, 0, &one, DT_FP32);
    per_row.w = 0;
    tpu_aligned_stride(&copy_stride, 0, &copies, DT_FP32);
    tpu_continuous_stride(&row_stride, &row);
    tpu_gdma_channel_bcast_S2L(gamma_row(), p->gamma, &copies, &copy_stride, &row_stride, DT_FP32);
    tpu_gdma_channel_bcast_S2L(beta_row(), p->beta, &copies, &copy_stride, &row_stride, DT_FP32);
    per_column = copy_stride;
    per_column.c = 0;
}

void layer_norm(const void *args) {
    const param_t *p = (const param_t *)args;
    const int count = p->rows / TILE;
    TPUKERNEL_ASSERT(p->rows > 0 && p->rows % TILE == 0);
    tpu_initialize();
    prepare(p);
    for (int step = 0; step < count + 2; step++) {
        tpu_parallel_start();
        if (step < count) {
            const system_addr_t from = p->x + (system_addr_t)step * TILE_BYTES;
            tpu_gdma_cpy_S2L(source(step), from, &tile, &near, &far, DT_FP32);
        }
        if (step > 0 && step <= count) compute(result(step - 1), source(step - 1), p->epsilon);
        if (step > 1) {
            const system_addr_t to = p->y + (system_addr_t)(step - 2) * TILE_BYTES;
            tpu_gdma_cpy_L2S(to, result(step), &tile, &far, &near, DT_FP32);
        }
        tpu_parallel_end();
    }
    tpu_poll();
}
TPUKERNEL_FUNC_REGISTER(layer_norm)
