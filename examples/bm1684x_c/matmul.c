/* A 1024 x 1024 x 1024 int8 matrix product with int8 results: the commands of ../bm1684x_matmul.py, from C.
 *
 * Tiles of 64 rows of both factors are loaded while those before them are multiplied. Loading grows a square (each pair
 * of tiles adds an L of products), then takes right tiles only, then left ones only.
 */
#include "tpu_kernel.h"

enum { TILE = 64, TILES = 16, HALF = TILES / 2, SIZE = TILE * TILES, NONE = -1, STAGES = 2 * TILES - HALF + 2 };

typedef struct {
    unsigned long long y, left, right;
    int multiplier, shift;
} __attribute__((packed)) param_t;

static const param_t *param;
static local_addr_t a, b, out, sums, small;
static const dim4 whole = {1, SIZE, 1, SIZE};
static dim4 near, far;

/* The local address of a row of tiles: 64 rows fill one slot of all lanes. */
static local_addr_t row_of(local_addr_t tensor, int tile) { return tensor + (local_addr_t)(tile * near.c); }

static void load(local_addr_t tensor, system_addr_t source, int tile) {
    const dim4 shape = {1, TILE, 1, SIZE};
    tpu_gdma_cpy_S2L(row_of(tensor, tile), source + (system_addr_t)(tile * TILE * SIZE), &shape, &near, &far, DT_INT8);
}

/* Products of `rows` left tiles from `row` on and `columns` right tiles from `column` on, rescaled to int8. */
static void multiply(int row, int rows, int column, int columns) {
    const dim4 shape = {1, rows * TILE, 1, columns * TILE};
    const scalar_t zero = {.s32 = 0};
    tpu_bdc_int8_zp_mm_R_trans(
        sums, row_of(a, row), row_of(b, column), zero, shape.c, SIZE, shape.w, DT_INT8, DT_INT8);
    tpu_bdc_int_requant(
        small, sums, &shape, param->multiplier, (char)param->shift, zero, DT_INT8, DT_INT32, RM_HALF_UP);
    tpu_bdc_cpy(row_of(out, row) + (local_addr_t)(column * TILE), small, &shape, &near, NULL, DT_INT8);
}

static void store(int row, int column, int columns) {
    const dim4 shape = {1, TILE, 1, columns * TILE};
    const int skip = column * TILE;
    tpu_gdma_cpy_L2S(
        param->y + (system_addr_t)(row * TILE * SIZE + skip), row_of(out, row) + (local_addr_t)skip, &shape, &far, &near,
        DT_INT8);
}

/* The left and the right tile that a stage loads, or NONE. */
static int left_of(int stage) {
    if (stage < 0 || stage >= HALF + TILES) return NONE;
    return stage < HALF ? stage : stage < TILES ? NONE : stage - TILES + HALF;
}
static int right_of(int stage) { return stage >= 0 && stage < TILES ? stage : NONE; }

void matmul(const void *args) {
    const local_addr_t bank = (local_addr_t)(tpu_local_mem_size_per_npu() / tpu_bank_num());
    param = (const param_t *)args;
    a = 0;
    b = bank;
    sums = 4 * bank;
    small = 5 * bank;
    out = 8 * bank;
    tpu_initialize();
    tpu_aligned_stride(&near, 0, &whole, DT_INT8);
    tpu_continuous_stride(&far, &whole);
    TPUKERNEL_ASSERT(TILES * near.c == (int)bank);

    for (int stage = 0; stage < HALF + TILES + 2; stage++) {
        tpu_parallel_start();
        if (left_of(stage) != NONE) load(a, param->left, left_of(stage));
        if (right_of(stage) != NONE) load(b, param->right, right_of(stage));

        const int row = left_of(stage - 1), column = right_of(stage - 1); /* loaded before */
        if (row != NONE) multiply(row, 1, 0, column == NONE ? TILES : column + 1);
        if (column > 0) multiply(0, MIN(column, HALF), column, 1);

        const int stored = stage - 1 - HALF; /* quarters of the first half, then whole rows */
        if (stored >= 0 && stored < TILES) store(stored % HALF, stored < HALF ? 0 : HALF, HALF);
        if (stored > HALF) store(stored - 1, 0, TILES);
        tpu_parallel_end();
    }
    tpu_poll();
}
TPUKERNEL_FUNC_REGISTER(matmul)
