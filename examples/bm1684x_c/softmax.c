/* A float32 softmax over rows of 1024 numbers: the commands of ../bm1684x_softmax.py, from C.
 *
 * Rows lie in lanes. Maxima and sums are pools: first over rows of 16, then over those 16. Tiles of 128 rows are loaded
 * and stored while others are computed.
 */
#include "tpu_kernel.h"

enum { TILE = 128, COLUMNS = 1024, SIDE = 16, TILE_BYTES = TILE * COLUMNS * 4 };

typedef struct {
    unsigned long long y, x;
    int rows;
} __attribute__((packed)) param_t;

static const dim4 tile = {1, TILE, 1, COLUMNS}, one = {1, TILE, 1, 1};
static const padding_t no_padding = {0, 0, 0, 0};
static const dim2 ones = {1, 1};
static dim4 near, far, repeated; /* strides: of a tile, of x and y, and of one number per row for all columns */
static local_addr_t folded, total;

static local_addr_t bank(int number) { return (local_addr_t)(number * (tpu_local_mem_size_per_npu() / tpu_bank_num())); }

/* Reduce each row of `source` to one number: `total` becomes the maximum of a row, or its sum. */
static void reduce(local_addr_t source, bool sum) {
    const dim4 split = {1, TILE, COLUMNS / SIDE, SIDE}, row = {1, TILE, 1, SIDE};
    const dim2 down = {COLUMNS / SIDE, 1}, across = {1, SIDE};
    const scalar_t lowest = {.u32 = FP_NEG_MAX(DT_FP32)}, scale = {.f32 = 1};
    if (sum) {
        tpu_bdc_fp_avg_pool2d(folded, source, &split, &down, &no_padding, &ones, &ones, DT_FP32, scale);
        tpu_bdc_fp_avg_pool2d(total, folded, &row, &across, &no_padding, &ones, &ones, DT_FP32, scale);
    } else {
        tpu_bdc_fp_max_pool2d(folded, source, &split, &down, &no_padding, &ones, &ones, DT_FP32, lowest);
        tpu_bdc_fp_max_pool2d(total, folded, &row, &across, &no_padding, &ones, &ones, DT_FP32, lowest);
    }
}

/* `result` = softmax of each row of `source`. */
static void compute(local_addr_t result, local_addr_t source) {
    const local_addr_t work0 = bank(4), work1 = bank(5), shifted = bank(6), coefficients = bank(9);
    reduce(source, false);
    tpu_bdc_fp_sub(shifted, source, total, &tile, NULL, NULL, &repeated, DT_FP32);
    tpu_bdc_fp32_exp(result, shifted, work0, work1, coefficients, 0, &tile);
    reduce(result, true);
    tpu_bdc_fp32_reciprocal(total, total, &one, NULL, NULL);
    tpu_bdc_fp_mul(result, result, total, &tile, NULL, NULL, &repeated, DT_FP32);
}

static void layouts(const param_t *p) {
    const dim4 whole = {1, p->rows, 1, COLUMNS};
    tpu_aligned_stride(&near, 0, &tile, DT_FP32);
    tpu_continuous_stride(&far, &whole);
    tpu_aligned_stride(&repeated, 0, &one, DT_FP32);
    repeated.w = 0;
}

void softmax(const void *args) {
    const param_t *p = (const param_t *)args;
    const int count = p->rows / TILE;
    TPUKERNEL_ASSERT(p->rows > 0 && p->rows % TILE == 0);
    tpu_initialize();
    layouts(p);
    folded = bank(7);
    total = bank(8);
    tpu_bdc_load_fp32_exp_coeff(bank(9));

    for (int step = 0; step < count + 2; step++) {
        tpu_parallel_start();
        if (step < count) {
            const system_addr_t from = p->x + (system_addr_t)step * TILE_BYTES;
            tpu_gdma_cpy_S2L(bank(step % 2), from, &tile, &near, &far, DT_FP32);
        }
        if (step > 0 && step <= count) compute(bank(2 + (step - 1) % 2), bank((step - 1) % 2));
        if (step > 1) {
            const system_addr_t to = p->y + (system_addr_t)(step - 2) * TILE_BYTES;
            tpu_gdma_cpy_L2S(to, bank(2 + step % 2), &tile, &far, &near, DT_FP32);
        }
        tpu_parallel_end();
    }
    tpu_poll();
}
TPUKERNEL_FUNC_REGISTER(softmax)
