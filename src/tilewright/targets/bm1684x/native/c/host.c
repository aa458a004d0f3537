/* The library for hosts in C. Each handle is a connection to a process that simulates a device (host/serve.py). */
#include "bmlib_runtime.h"
#undef bm_dev_free
#undef tpu_kernel_launch_async

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "requests.h"

struct bm_context { struct tw_connection to; };
struct tilewright_module { uint32_t number; };

const char *tilewright_last_error(void) { return tw_last_error(); }

static bm_status_t failed(bm_status_t status, const char *reason) {
    tw_failed(reason);
    return status;
}

static bm_status_t ask2(
    bm_handle_t handle, uint32_t kind, const void *first, size_t size, const void *second, size_t more, void *answer,
    size_t room) {
    if (!handle) return failed(BM_ERR_PARAM, "the handle is NULL; call bm_dev_request first");
    int status = tw_ask(&handle->to, kind, first, size, second, more, answer, room); /* TW_ENDED: BM_ERR_DEVNOTREADY */
    return status < 0 ? BM_ERR_PARAM : (bm_status_t)status;
}

static bm_status_t ask(bm_handle_t handle, uint32_t kind, const void *words, size_t size, void *answer, size_t room) {
    return ask2(handle, kind, words, size, NULL, 0, answer, room);
}

bm_status_t bm_dev_getcount(int *count) {
    *count = 1;
    return BM_SUCCESS;
}

static void leave(bm_handle_t handle) {
    tw_leave(&handle->to);
    free(handle);
}

bm_status_t bm_dev_request(bm_handle_t *handle, int devid) {
    *handle = NULL;
    if (devid < 0 || devid > 255) return failed(BM_ERR_PARAM, "bm_dev_request: there is no such device; give 0..255");
    bm_handle_t made = calloc(1, sizeof *made);
    if (!made || !tw_start(&made->to, -1)) {
        free(made);
        return BM_ERR_DEVNOTREADY;
    }
    bm_status_t status = ask(made, HELLO, NULL, 0, NULL, 0); /* wait until it is there */
    if (status == BM_SUCCESS) *handle = made;
    else leave(made);
    return status;
}

void tilewright_dev_free(bm_handle_t *handle) {
    if (!handle || !*handle) return;
    ask(*handle, CLOSE, NULL, 0, NULL, 0);
    leave(*handle);
    *handle = NULL;
}
void bm_dev_free(bm_handle_t handle) { tilewright_dev_free(&handle); }

bm_status_t bm_malloc_device_byte(bm_handle_t handle, bm_device_mem_t *mem, unsigned int size) {
    uint64_t wanted = size, address = 0;
    bm_status_t status = ask(handle, MALLOC, &wanted, sizeof wanted, &address, sizeof address);
    *mem = bm_mem_from_device(address, status == BM_SUCCESS ? size : 0);
    return status;
}
bm_status_t bm_malloc_device_byte_heap(bm_handle_t handle, bm_device_mem_t *mem, int heap, unsigned int size) {
    (void)heap;
    return bm_malloc_device_byte(handle, mem, size);
}
void bm_free_device(bm_handle_t handle, bm_device_mem_t mem) {
    uint64_t address = bm_mem_get_device_addr(mem);
    ask(handle, FREE, &address, sizeof address, NULL, 0);
}
unsigned long long bm_mem_get_device_addr(bm_device_mem_t mem) { return mem.u.device.device_addr; }
unsigned int bm_mem_get_device_size(bm_device_mem_t mem) { return mem.size; }
bm_device_mem_t bm_mem_from_device(unsigned long long address, unsigned int size) {
    bm_device_mem_t mem;
    memset(&mem, 0, sizeof mem);
    mem.u.device.device_addr = address;
    mem.size = size;
    return mem;
}

static int fits(bm_device_mem_t mem, size_t size, size_t offset) { return offset <= mem.size && size <= mem.size - offset; }

bm_status_t bm_memcpy_s2d_partial_offset(
    bm_handle_t handle, bm_device_mem_t dst, void *src, unsigned int size, unsigned int offset) {
    uint64_t address = bm_mem_get_device_addr(dst) + offset;
    if (!fits(dst, size, offset)) return failed(BM_ERR_PARAM, "bm_memcpy_s2d: it goes beyond the end of the device memory");
    return ask2(handle, S2D, &address, sizeof address, src, size, NULL, 0);
}
bm_status_t bm_memcpy_s2d_partial(bm_handle_t handle, bm_device_mem_t dst, void *src, unsigned int size) {
    return bm_memcpy_s2d_partial_offset(handle, dst, src, size, 0);
}
bm_status_t bm_memcpy_s2d(bm_handle_t handle, bm_device_mem_t dst, void *src) {
    return bm_memcpy_s2d_partial_offset(handle, dst, src, dst.size, 0);
}
bm_status_t bm_memcpy_d2s_partial_offset(
    bm_handle_t handle, void *dst, bm_device_mem_t src, unsigned int size, unsigned int offset) {
    uint64_t words[] = {bm_mem_get_device_addr(src) + offset, size};
    if (!fits(src, size, offset)) return failed(BM_ERR_PARAM, "bm_memcpy_d2s: it goes beyond the end of the device memory");
    return ask(handle, D2S, words, sizeof words, dst, size);
}
bm_status_t bm_memcpy_d2s_partial(bm_handle_t handle, void *dst, bm_device_mem_t src, unsigned int size) {
    return bm_memcpy_d2s_partial_offset(handle, dst, src, size, 0);
}
bm_status_t bm_memcpy_d2s(bm_handle_t handle, void *dst, bm_device_mem_t src) {
    return bm_memcpy_d2s_partial_offset(handle, dst, src, src.size, 0);
}
bm_status_t bm_memcpy_d2d_byte(
    bm_handle_t handle, bm_device_mem_t dst, size_t dst_offset, bm_device_mem_t src, size_t src_offset, size_t size) {
    uint64_t words[] = {bm_mem_get_device_addr(dst) + dst_offset, bm_mem_get_device_addr(src) + src_offset, size};
    if (!fits(dst, size, dst_offset) || !fits(src, size, src_offset))
        return failed(BM_ERR_PARAM, "bm_memcpy_d2d: it goes beyond the end of the device memory");
    return ask(handle, D2D, words, sizeof words, NULL, 0);
}
bm_status_t bm_memset_device(bm_handle_t handle, const int value, bm_device_mem_t mem) {
    uint64_t words[] = {bm_mem_get_device_addr(mem), mem.size, (uint32_t)value};
    return ask(handle, FILL, words, sizeof words, NULL, 0);
}

static bm_status_t launch(bm_handle_t handle, uint32_t kind, const char *name, const void *args, size_t size) {
    size_t length = strlen(name);
    char *both = malloc(length + 4);
    if (!both) return failed(BM_ERR_NOMEM, "the host has no memory left");
    uint32_t count = (uint32_t)length;
    memcpy(both, &count, 4);
    memcpy(both + 4, name, length);
    bm_status_t status = ask2(handle, kind, both, length + 4, args, size, NULL, 0);
    free(both);
    return status;
}
bm_status_t tpu_kernel_load_firmware(bm_handle_t handle, const char *path) {
    return ask(handle, FIRMWARE, path, strlen(path), NULL, 0);
}
bm_status_t tpu_kernel_launch_sync(bm_handle_t handle, const char *name, const void *args, unsigned int size) {
    return launch(handle, LAUNCH, name, args, size);
}
bm_status_t tpu_kernel_launch_async(bm_handle_t handle, const char *name, const void *args, unsigned int size) {
    return launch(handle, LAUNCH_ASYNC, name, args, size);
}
bm_status_t tpu_kernel_sync(bm_handle_t handle) { return ask(handle, SYNC, NULL, 0, NULL, 0); }
bm_status_t bm_thread_sync(bm_handle_t handle) { return tpu_kernel_sync(handle); }

tpu_kernel_module_t tpu_kernel_load_module_file(bm_handle_t handle, const char *path) {
    tpu_kernel_module_t module = calloc(1, sizeof *module);
    if (module && ask(handle, MODULE, path, strlen(path), &module->number, sizeof module->number) != BM_SUCCESS) {
        free(module);
        module = NULL;
    }
    return module;
}
tpu_kernel_module_t tpu_kernel_load_module(bm_handle_t handle, const char *data, size_t size) {
    char path[] = "/tmp/tilewright-module-XXXXXX";
    int file = mkstemp(path);
    tpu_kernel_module_t module = NULL;
    for (size_t done = 0; file >= 0 && done < size;) {
        ssize_t part = write(file, data + done, size - done);
        if (part <= 0) break;
        done += (size_t)part;
    }
    if (file < 0 || close(file)) failed(BM_ERR_FAILURE, "tpu_kernel_load_module: /tmp cannot be written");
    else module = tpu_kernel_load_module_file(handle, path);
    unlink(path);
    return module;
}
bm_status_t tpu_kernel_unload_module(bm_handle_t handle, tpu_kernel_module_t module) {
    if (!module) return failed(BM_ERR_PARAM, "the module is NULL");
    bm_status_t status = ask(handle, UNLOAD, &module->number, sizeof module->number, NULL, 0);
    if (status == BM_SUCCESS) free(module);
    return status;
}
bm_status_t tpu_kernel_free_module(bm_handle_t handle, tpu_kernel_module_t module) {
    return tpu_kernel_unload_module(handle, module);
}
tpu_kernel_function_t tpu_kernel_get_function(bm_handle_t handle, tpu_kernel_module_t module, const char *name) {
    uint32_t number = 0;
    if (!module) return failed(BM_ERR_PARAM, "the module is NULL"), -1;
    bm_status_t status = ask2(
        handle, FUNCTION, &module->number, sizeof module->number, name, strlen(name), &number, sizeof number);
    return status == BM_SUCCESS ? (tpu_kernel_function_t)number : -1;
}
static bm_status_t numbered(bm_handle_t handle, tpu_kernel_function_t function, const void *args, size_t size, uint32_t waited) {
    uint32_t words[] = {waited, (uint32_t)function};
    return ask2(handle, NUMBERED, words, sizeof words, args, size, NULL, 0);
}
bm_status_t tpu_kernel_launch(bm_handle_t handle, tpu_kernel_function_t function, void *args, size_t size) {
    return numbered(handle, function, args, size, 1);
}
bm_status_t tilewright_launch_async(bm_handle_t handle, tpu_kernel_function_t function, void *args, size_t size) {
    return numbered(handle, function, args, size, 0);
}

unsigned long long tilewright_cycles(bm_handle_t handle) {
    uint64_t cycles = 0;
    ask(handle, CYCLES, NULL, 0, &cycles, sizeof cycles);
    return cycles;
}
