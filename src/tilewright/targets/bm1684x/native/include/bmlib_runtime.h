/* The host API for programs in C and C++: devices, their memory, firmware and launches.
 *
 *     cc host.c $(tilewright config --bm1684x --cflags --libs)
 *
 * bm_dev_request starts a process that simulates one device; the handle is a connection to it. A call that fails prints
 * its reason on stderr, and so does a launch with findings, such as races.
 */
#ifndef BMLIB_RUNTIME_H
#define BMLIB_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    BM_SUCCESS, BM_ERR_DEVNOTREADY, BM_ERR_FAILURE, BM_ERR_TIMEOUT, BM_ERR_PARAM,
    BM_ERR_NOMEM, BM_ERR_DATA, BM_ERR_BUSY, BM_ERR_NOFEATURE, BM_NOT_SUPPORTED
} bm_status_t;

typedef struct bm_context *bm_handle_t;

/* A piece of device memory. Programs use the functions below, not the fields. */
typedef struct bm_mem_desc {
    union { struct { unsigned long long device_addr; } device; } u;
    unsigned int size;
} bm_mem_desc_t, bm_device_mem_t;

bm_status_t bm_dev_getcount(int *count);
bm_status_t bm_dev_request(bm_handle_t *handle, int devid);
void bm_dev_free(bm_handle_t handle);
void tilewright_dev_free(bm_handle_t *handle);

bm_status_t bm_malloc_device_byte(bm_handle_t handle, bm_device_mem_t *mem, unsigned int size);
bm_status_t bm_malloc_device_byte_heap(bm_handle_t handle, bm_device_mem_t *mem, int heap, unsigned int size);
void bm_free_device(bm_handle_t handle, bm_device_mem_t mem);
unsigned long long bm_mem_get_device_addr(bm_device_mem_t mem);
unsigned int bm_mem_get_device_size(bm_device_mem_t mem);
bm_device_mem_t bm_mem_from_device(unsigned long long address, unsigned int size);

/* Copy all of the device memory, its first `size` bytes, or `size` bytes from byte `offset` on. */
bm_status_t bm_memcpy_s2d(bm_handle_t handle, bm_device_mem_t dst, void *src);
bm_status_t bm_memcpy_s2d_partial(bm_handle_t handle, bm_device_mem_t dst, void *src, unsigned int size);
bm_status_t bm_memcpy_s2d_partial_offset(
    bm_handle_t handle, bm_device_mem_t dst, void *src, unsigned int size, unsigned int offset);
bm_status_t bm_memcpy_d2s(bm_handle_t handle, void *dst, bm_device_mem_t src);
bm_status_t bm_memcpy_d2s_partial(bm_handle_t handle, void *dst, bm_device_mem_t src, unsigned int size);
bm_status_t bm_memcpy_d2s_partial_offset(
    bm_handle_t handle, void *dst, bm_device_mem_t src, unsigned int size, unsigned int offset);
bm_status_t bm_memcpy_d2d_byte(
    bm_handle_t handle, bm_device_mem_t dst, size_t dst_offset, bm_device_mem_t src, size_t src_offset, size_t size);
bm_status_t bm_memset_device(bm_handle_t handle, const int value, bm_device_mem_t mem); /* words of 4 bytes */

/* Firmware: one that replaces all others, and functions launched by their names. */
bm_status_t tpu_kernel_load_firmware(bm_handle_t handle, const char *path);
bm_status_t tpu_kernel_launch_sync(bm_handle_t handle, const char *name, const void *args, unsigned int size);
bm_status_t tpu_kernel_launch_async(bm_handle_t handle, const char *name, const void *args, unsigned int size);
bm_status_t tpu_kernel_sync(bm_handle_t handle);
bm_status_t bm_thread_sync(bm_handle_t handle);

/* Modules: firmware side by side, and functions launched by their numbers. NULL and -1 stand for a failure. */
typedef struct tilewright_module *tpu_kernel_module_t;
typedef int tpu_kernel_function_t;
tpu_kernel_module_t tpu_kernel_load_module_file(bm_handle_t handle, const char *path);
tpu_kernel_module_t tpu_kernel_load_module(bm_handle_t handle, const char *data, size_t size);
bm_status_t tpu_kernel_free_module(bm_handle_t handle, tpu_kernel_module_t module);
bm_status_t tpu_kernel_unload_module(bm_handle_t handle, tpu_kernel_module_t module);
tpu_kernel_function_t tpu_kernel_get_function(bm_handle_t handle, tpu_kernel_module_t module, const char *name);
bm_status_t tpu_kernel_launch(bm_handle_t handle, tpu_kernel_function_t function, void *args, size_t size);
bm_status_t tilewright_launch_async(bm_handle_t handle, tpu_kernel_function_t function, void *args, size_t size);

/* Of this model: the reason of this thread's last failure, and the cycles of all launches of a handle so far. */
const char *tilewright_last_error(void);
unsigned long long tilewright_cycles(bm_handle_t handle);

#ifdef __cplusplus
}
inline void bm_dev_free(bm_handle_t *handle) { tilewright_dev_free(handle); }
inline bm_status_t tpu_kernel_launch_async(bm_handle_t handle, tpu_kernel_function_t function, void *args, size_t size) {
    return tilewright_launch_async(handle, function, args, size);
}
#else
/* Two generations of the API differ: a device is freed by its handle or by the handle's address, and an asynchronous
 * launch takes a name or a number. */
#define bm_dev_free(handle) _Generic((handle), bm_handle_t *: tilewright_dev_free, default: bm_dev_free)(handle)
#define tpu_kernel_launch_async(handle, function, args, size)                                                    \
    _Generic((function), tpu_kernel_function_t: tilewright_launch_async, default: tpu_kernel_launch_async)(      \
        handle, function, args, size)
#endif
#endif
