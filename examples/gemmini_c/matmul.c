/* Multiply matrices of 256 x 256 on Gemmini: with the function that chooses tiles, and command by command. Run it:
 *
 *     tilewright exec matmul.c -t gemmini
 */
#include "include/gemmini_testutils.h"

enum { N = 256, BLOCKS = N / DIM };
static elem_t A[N][N] row_align(4), B[N][N] row_align(4), C[N][N] row_align(4), wanted[N][N];

static void fill(void) {
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            A[i][j] = rand() % 5 - 2;
            B[i][j] = rand() % 5 - 2;
        }
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            acc_t sum = 0;
            for (size_t k = 0; k < N; k++) sum += A[i][k] * B[k][j];
            wanted[i][j] = sum > 127 ? 127 : sum < -128 ? -128 : sum;
        }
}

/* One row of blocks of C after the other. A lies in the first rows of the scratchpad, B behind it. */
static void by_hand(void) {
    const uint32_t b_start = BLOCKS * DIM, acc = (uint32_t)1 << 31, add = (uint32_t)1 << 30;
    gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
    gemmini_config_ld(N);
    gemmini_config_st(N);
    for (size_t k = 0; k < BLOCKS; k++)
        for (size_t j = 0; j < BLOCKS; j++) {
            gemmini_mvin(&B[k * DIM][j * DIM], b_start + (k * BLOCKS + j) * DIM);
        }
    for (size_t i = 0; i < BLOCKS; i++) {
        for (size_t k = 0; k < BLOCKS; k++) {
            gemmini_mvin(&A[i * DIM][k * DIM], k * DIM);
        }
        for (size_t k = 0; k < BLOCKS; k++)
            for (size_t j = 0; j < BLOCKS; j++) {
                gemmini_preload(b_start + (k * BLOCKS + j) * DIM, (acc | (k ? add : 0)) + j * DIM);
                gemmini_compute_preloaded(k * DIM, GARBAGE_ADDR);
            }
        for (size_t j = 0; j < BLOCKS; j++) {
            gemmini_mvout(&C[i * DIM][j * DIM], acc + j * DIM);
        }
    }
    gemmini_fence();
}

static void report(const char *how, uint64_t start) {
    const uint64_t cycles = read_cycles() - start;
    printf("%s: %llu cycles, %s\n", how, (unsigned long long)cycles, memcmp(C, wanted, sizeof C) ? "wrong" : "right");
    memset(C, 0, sizeof C);
}

int main(void) {
    fill();
    gemmini_flush(0);
    uint64_t start = read_cycles();
    tiled_matmul_auto(
        N, N, N, &A[0][0], &B[0][0], NULL, &C[0][0], N, N, N, N, MVIN_SCALE_IDENTITY, MVIN_SCALE_IDENTITY,
        MVIN_SCALE_IDENTITY, NO_ACTIVATION, ACC_SCALE_IDENTITY, 0, false, false, false, false, false, 0, WS);
    report("tiled_matmul_auto", start);
    start = read_cycles();
    by_hand();
    report("by hand", start);
    return 0;
}
