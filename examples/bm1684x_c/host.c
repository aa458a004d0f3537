/* A host: it launches the functions of device_a.c and device_b.c, with waiting and without.
 *
 *     tilewright firmware device_a.c device_b.c -o bm1684x.bin
 *     cc host.c $(tilewright config --bm1684x --cflags --libs) -o host
 *     ./host bm1684x.bin
 */
#include <stdio.h>
#include <stdlib.h>

#include "bmlib_runtime.h"
#include "device.h"

enum { LENGTH = 64 * 25, BYTES = LENGTH * 4 };

/* Numbers of types in the device API. */
enum { INT8 = 1, FP16 = 3 };

static void check(bm_status_t status, const char *what) {
    if (status == BM_SUCCESS) return;
    fprintf(stderr, "%s fails with the status %d\n", what, status);
    exit(1);
}

/* The shortest host: launch a function, and wait for it. */
static void synchronous(bm_handle_t handle, bm_device_mem_t y, bm_device_mem_t x) {
    param_func_0 param = {bm_mem_get_device_addr(y), bm_mem_get_device_addr(x), LENGTH};
    check(tpu_kernel_launch_sync(handle, "func_0_0", &param, sizeof(param)), "func_0_0");
}

/* Launches run in order; the host goes on, and waits for all of them at the end. */
static void asynchronous(bm_handle_t handle, bm_device_mem_t y, bm_device_mem_t x) {
    param_func_0 first = {bm_mem_get_device_addr(y), bm_mem_get_device_addr(x), LENGTH};
    param_func_0 second = {bm_mem_get_device_addr(y), bm_mem_get_device_addr(y), LENGTH};
    check(tpu_kernel_launch_async(handle, "func_0_1", &first, sizeof(first)), "func_0_1");
    check(tpu_kernel_launch_async(handle, "func_0_0", &second, sizeof(second)), "func_0_0");
    check(tpu_kernel_sync(handle), "tpu_kernel_sync");
}

/* Count the wrong results: y = x + 1 for a power of 1, y = x * x + 1 for a power of 2. */
static int wrong(bm_handle_t handle, bm_device_mem_t y, const float *x, int power) {
    static float result[LENGTH];
    int count = 0;
    check(bm_memcpy_d2s(handle, result, y), "bm_memcpy_d2s");
    for (int i = 0; i < LENGTH; i++) count += result[i] != (power == 1 ? x[i] : x[i] * x[i]) + 1;
    return count;
}

/* Where the elements of the tensor (4, 3, 2, 2) go with several strides. */
static void strides(bm_handle_t handle, bm_device_mem_t y, bm_device_mem_t x) {
    static const int list[][4] = {{12, 4, 2, 1}, {24, 4, 2, 1}, {24, 8, 4, 2}, {24, 8, 4, 1}};
    signed char elements[48], memory[96];
    for (int i = 0; i < 48; i++) elements[i] = (signed char)i;
    check(bm_memcpy_s2d_partial(handle, x, elements, sizeof elements), "bm_memcpy_s2d");
    for (int i = 0; i < 4; i++) {
        const int *s = list[i];
        param_strides param = {
            bm_mem_get_device_addr(y), bm_mem_get_device_addr(x), 4, 3, 2, 2, s[0], s[1], s[2], s[3]};
        check(bm_memset_device(handle, -1, y), "bm_memset_device");
        check(tpu_kernel_launch_sync(handle, "strided", &param, sizeof(param)), "strided");
        check(bm_memcpy_d2s_partial(handle, memory, y, sizeof memory), "bm_memcpy_d2s");
        printf("strides (%d, %d, %d, %d):", s[0], s[1], s[2], s[3]);
        for (int j = 0; j < 28; j++) memory[j] < 0 ? printf(" .") : printf(" %d", memory[j]);
        printf(" ..\n");
    }
}

static void layout(bm_handle_t handle, const char *name, int n, int c, int h, int w, int start, int dtype) {
    param_layout param = {n, c, h, w, start, dtype};
    fflush(stdout);
    check(tpu_kernel_launch_sync(handle, name, &param, sizeof(param)), name);
}

int main(int argc, char **argv) {
    bm_handle_t handle;
    bm_device_mem_t x, y;
    static float values[LENGTH];
    for (int i = 0; i < LENGTH; i++) values[i] = (float)i;

    check(bm_dev_request(&handle, 0), "bm_dev_request");
    check(tpu_kernel_load_firmware(handle, argc > 1 ? argv[1] : "bm1684x.bin"), "tpu_kernel_load_firmware");
    check(bm_malloc_device_byte(handle, &x, BYTES), "bm_malloc_device_byte");
    check(bm_malloc_device_byte(handle, &y, BYTES), "bm_malloc_device_byte");
    check(bm_memcpy_s2d(handle, x, values), "bm_memcpy_s2d");

    synchronous(handle, y, x);
    printf("synchronous: %d wrong\n", wrong(handle, y, values, 1));
    asynchronous(handle, y, x);
    printf("asynchronous: %d wrong\n", wrong(handle, y, values, 2));

    strides(handle, y, x);
    layout(handle, "layouts", 2, 3, 4, 5, 0, FP16);
    layout(handle, "layouts", 2, 3, 4, 5, 2, FP16);
    layout(handle, "layouts", 1, 66, 1, 1, 0, FP16); /* more channels than lanes: some lanes hold two */
    layout(handle, "layouts", 1, 66, 1, 1, 63, FP16);
    layout(handle, "matrices", 2, 40, 1, 1, 0, FP16);
    layout(handle, "kernels", 1, 100, 3, 3, 0, INT8);
    layout(handle, "kernels", 1, 100, 3, 3, 0, FP16);

    bm_free_device(handle, x);
    bm_free_device(handle, y);
    bm_dev_free(&handle);
    return 0;
}
