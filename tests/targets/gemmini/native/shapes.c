/* Random products, convolutions, additions and averages, against loops that share nothing with the headers' tiles.
 * SEED and ROUNDS are macros. */
#include "include/gemmini_testutils.h"

enum { MOST = 1 << 17 };
static elem_t one[MOST], two[MOST], out[MOST];
static acc_t bias[MOST];
static uint32_t state = SEED;

static int pick(int least, int most) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return least + (int)(state % (uint32_t)(most - least + 1));
}

static elem_t saturated(acc_t sum, float scale, bool relu) {
    long x = lrintf((float)sum * scale);
    x = x > 127 ? 127 : x < -128 ? -128 : x;
    return relu && x < 0 ? 0 : x;
}

static void fill(void) {
    for (int i = 0; i < MOST; i++) {
        one[i] = pick(-6, 6);
        two[i] = pick(-6, 6);
        bias[i] = pick(-99, 99);
        out[i] = 55;
    }
}

static void expect(const char *what, int at, elem_t wanted) {
    if (out[at] == wanted) return;
    printf("%s: element %d is %d, not %d (SEED %u)\n", what, at, out[at], wanted, (unsigned)SEED);
    exit(1);
}

static void product(void) {
    const int I = pick(1, 150), J = pick(1, 150), K = pick(1, 200), a = pick(0, 1), b = a ? 0 : pick(0, 1);
    const enum tiled_matmul_type_t type = a || b ? WS : pick(0, 1);
    const int biased = pick(0, 2), relu = pick(0, 1);
    const float scale = 1.0f / pick(1, 40);
    fill();
    tiled_matmul_auto(
        I, J, K, one, two, biased ? bias : NULL, out, a ? I : K, b ? K : J, J, J, 1.0, 1.0, 1.0, relu, scale, 0,
        biased == 2, a, b, false, false, 0, type);
    for (int i = 0; i < I; i++)
        for (int j = 0; j < J; j++) {
            acc_t sum = !biased ? 0 : bias[(biased == 2 ? 0 : i) * J + j];
            for (int k = 0; k < K; k++) sum += one[a ? k * I + i : i * K + k] * two[b ? j * K + k : k * J + j];
            expect("product", i * J + j, saturated(sum, scale, relu));
        }
}

enum kind { PLAIN, DEPTHWISE, FIRST }; /* FIRST: few channels, and tiles that keep their weights */

static void convolution(enum kind kind) {
    const bool depthwise = kind == DEPTHWISE, first = kind == FIRST;
    const int N = pick(1, 3), H = first ? pick(40, 60) : pick(5, 20), W = first ? pick(40, 60) : pick(5, 20);
    const int kernel = first ? 3 : pick(1, 4), pad = pick(0, kernel - 1), dilation = kind ? 1 : pick(1, 2);
    const int stride = first ? 2 : pick(1, 2), relu = pick(0, 1), biased = pick(0, 1);
    const int C = pick(1, first ? 3 : depthwise ? 20 : 40), O = depthwise ? C : first ? 32 : pick(1, 40);
    const int span = (kernel - 1) * dilation + 1;
    if (H + 2 * pad < span || W + 2 * pad < span) return;
    const int rows = (H + 2 * pad - span) / stride + 1, cols = (W + 2 * pad - span) / stride + 1;
    const int pool = rows > 3 && cols > 3 ? pick(0, 3) : 0, step = pool ? pick(1, pool) : 0;
    const float scale = 1.0f / pick(1, 40);
    fill();
    if (depthwise)
        tiled_conv_dw_auto(
            N, H, W, C, rows, cols, stride, pad, kernel, one, two, biased ? bias : NULL, out, relu, scale, pool, step,
            0, WS);
    else
        tiled_conv_auto(
            N, H, W, C, O, rows, cols, stride, 1, dilation, pad, kernel, false, false, false, false, false, one, two,
            biased ? bias : NULL, out, relu, scale, pool, step, 0, WS);
    gemmini_fence();
    const int high = pool ? (rows - pool) / step + 1 : rows, wide = pool ? (cols - pool) / step + 1 : cols;
    for (int n = 0; n < N; n++)
        for (int y = 0; y < high; y++)
            for (int x = 0; x < wide; x++)
                for (int o = 0; o < O; o++) {
                    int most = -128;
                    for (int p = 0; p < (pool ? pool * pool : 1); p++) {
                        const int row = pool ? y * step + p / pool : y, col = pool ? x * step + p % pool : x;
                        acc_t sum = biased ? bias[o] : 0;
                        for (int i = 0; i < kernel; i++)
                            for (int j = 0; j < kernel; j++) {
                                const int r = row * stride + i * dilation - pad, c = col * stride + j * dilation - pad;
                                if (r < 0 || c < 0 || r >= H || c >= W) continue;
                                for (int k = depthwise ? o : 0; k < (depthwise ? o + 1 : C); k++)
                                    sum += one[((n * H + r) * W + c) * C + k]
                                        * two[depthwise ? (o * kernel + i) * kernel + j : ((i * kernel + j) * C + k) * O + o];
                            }
                        const elem_t value = saturated(sum, scale, relu);
                        most = value > most ? value : most;
                    }
                    expect(depthwise ? "depthwise" : "convolution", ((n * high + y) * wide + x) * O + o, most);
                }
}

static void addition(void) {
    const int I = pick(1, 200), J = pick(1, 200), relu = pick(0, 1);
    const float a = 1.0f / pick(1, 3), b = 1.0f / pick(1, 3), c = 1.0f / pick(1, 3);
    fill();
    tiled_resadd_auto(I, J, a, b, c, one, two, out, relu, WS);
    for (int i = 0; i < I * J; i++)
        expect("addition", i, saturated(saturated(one[i], a, false) + saturated(two[i], b, false), c, relu));
}

static void average(void) {
    const int N = pick(1, 3), C = pick(1, 100), size = pick(1, 8);
    fill();
    tiled_global_average_auto(one, out, N, C, size, WS);
    gemmini_fence();
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            acc_t sum = 0;
            for (int p = 0; p < size * size; p++) sum += one[(n * size * size + p) * C + c];
            expect("average", n * C + c, saturated(sum, 1.0 / (size * size), false));
        }
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        product();
        convolution(PLAIN);
        convolution(DEPTHWISE);
        convolution(FIRST);
        addition();
        average();
    }
    printf("%d rounds\n", ROUNDS);
    return 0;
}
