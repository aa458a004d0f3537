/* What the host API promises, with its statuses. Also compiled as C++. Arguments: firmware in C, firmware in Python. */
#include "bmlib_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long y, x; float factor; int race; } __attribute__((packed)) param_t;
enum { COUNT = 64 * 64, BYTES = COUNT * 4 };
static float x[COUNT], y[COUNT];

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            printf("host.c:%d: not so: %s\n", __LINE__, #condition);  \
            exit(1);                                                  \
        }                                                             \
    } while (0)
#define SAYS(text) CHECK(strstr(tilewright_last_error(), text))

static int scaled(float factor) {
    for (int i = 0; i < COUNT; i++)
        if (y[i] != x[i] * factor) return 0;
    return 1;
}

int main(int argc, char **argv) {
    bm_handle_t handle, other;
    bm_device_mem_t from, to, theirs;
    int count = 0;
    CHECK(argc == 3);
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    CHECK(bm_dev_getcount(&count) == BM_SUCCESS && count == 1);
    CHECK(bm_dev_request(&handle, -1) == BM_ERR_PARAM && handle == NULL);
    CHECK(bm_malloc_device_byte(NULL, &from, 8) == BM_ERR_PARAM);
    CHECK(bm_dev_request(&handle, 0) == BM_SUCCESS);
    CHECK(bm_dev_request(&other, 0) == BM_SUCCESS);

    CHECK(bm_malloc_device_byte(handle, &from, BYTES) == BM_SUCCESS);
    CHECK(bm_malloc_device_byte(handle, &to, BYTES) == BM_SUCCESS);
    CHECK(bm_malloc_device_byte(handle, &theirs, 0) == BM_ERR_PARAM);
    CHECK(bm_mem_get_device_size(from) == BYTES && bm_mem_get_device_addr(to) != bm_mem_get_device_addr(from));
    CHECK(bm_malloc_device_byte(other, &theirs, 64) == BM_SUCCESS);
    CHECK(bm_mem_get_device_addr(theirs) == bm_mem_get_device_addr(from)); /* another device */
    CHECK(bm_memcpy_s2d(handle, from, x) == BM_SUCCESS);
    CHECK(bm_memcpy_s2d_partial_offset(handle, from, x, 8, BYTES - 4) == BM_ERR_PARAM);
    CHECK(bm_memcpy_d2d_byte(handle, to, 16, from, 8, 32) == BM_SUCCESS);
    CHECK(bm_memcpy_d2s_partial_offset(handle, y, to, 32, 16) == BM_SUCCESS && !memcmp(y, x + 2, 32));
    CHECK(bm_memset_device(handle, 0x3F800000, to) == BM_SUCCESS);
    CHECK(bm_memcpy_d2s(handle, y, to) == BM_SUCCESS && y[0] == 1 && y[COUNT - 1] == 1);
    CHECK(bm_memcpy_d2s_partial(other, y, bm_mem_from_device(1, 4), 4) == BM_ERR_PARAM);

    param_t p = {bm_mem_get_device_addr(to), bm_mem_get_device_addr(from), 2, 0};
    CHECK(tpu_kernel_launch_sync(handle, "scale", &p, sizeof p) == BM_ERR_PARAM);
    SAYS("load firmware first");
    CHECK(tpu_kernel_load_firmware(handle, "nothing.bin") == BM_ERR_DATA);
    CHECK(tpu_kernel_load_firmware(handle, argv[1]) == BM_SUCCESS);
    CHECK(tpu_kernel_launch_sync(handle, "scale", &p, sizeof p) == BM_SUCCESS);
    CHECK(bm_memcpy_d2s(handle, y, to) == BM_SUCCESS && scaled(2));
    CHECK(tilewright_cycles(handle) > 0);
    p.race = 1; /* a finding is printed, and not a failure */
    p.factor = 3;
    CHECK(tpu_kernel_launch_async(handle, "scale", &p, sizeof p) == BM_SUCCESS);
    CHECK(tpu_kernel_sync(handle) == BM_SUCCESS && bm_memcpy_d2s(handle, y, to) == BM_SUCCESS && scaled(3));
    p.x = 8;
    CHECK(tpu_kernel_launch_async(handle, "scale", &p, sizeof p) == BM_SUCCESS);
    CHECK(tpu_kernel_sync(handle) == BM_ERR_FAILURE);
    SAYS("dma command 0 (");
    SAYS("kernel.c:9)");

    p.x = bm_mem_get_device_addr(from); /* firmware in Python beside firmware in C, under the same name */
    p.race = 0;
    tpu_kernel_module_t c = tpu_kernel_load_module_file(handle, argv[1]);
    tpu_kernel_module_t python = tpu_kernel_load_module_file(handle, argv[2]);
    CHECK(c && python && tpu_kernel_get_function(handle, c, "nothing") == -1);
    tpu_kernel_function_t one = tpu_kernel_get_function(handle, c, "scale");
    tpu_kernel_function_t two = tpu_kernel_get_function(handle, python, "scale");
    CHECK(tpu_kernel_launch(handle, one, &p, sizeof p) == BM_SUCCESS);
    CHECK(bm_memcpy_d2s(handle, y, to) == BM_SUCCESS && scaled(3));
    CHECK(tpu_kernel_launch_async(handle, two, &p, sizeof p) == BM_SUCCESS && bm_thread_sync(handle) == BM_SUCCESS);
    CHECK(bm_memcpy_d2s(handle, y, to) == BM_SUCCESS && scaled(-3));
    CHECK(tpu_kernel_unload_module(handle, python) == BM_SUCCESS);
    CHECK(tpu_kernel_launch(handle, two, &p, sizeof p) == BM_ERR_PARAM);
    bm_free_device(handle, from);
    CHECK(bm_memcpy_d2s(handle, y, from) == BM_ERR_PARAM);
    SAYS("is freed");
    bm_dev_free(&handle); /* both generations of the API */
    bm_dev_free(other);
    CHECK(handle == NULL);
    printf("all is so\n");
    return 0;
}
