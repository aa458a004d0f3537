/* The device API for kernels in C. `tilewright firmware` compiles kernels against this header.
 *
 * A call records a command. The commands run when the kernel returns, or earlier if it asks for a value that depends
 * on them. Each name below is also a macro, which notes the line of the call; the function itself checks the types.
 */
#ifndef TPU_KERNEL_H
#define TPU_KERNEL_H

#include "tpu_defs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*tpu_kernel_func_t)(const void *);

/* Where the running call is in the source. Static functions of a kernel may issue commands, too. */
extern const char *tw_file;
extern int tw_line;
static inline void tw_at(const char *file, int line) { tw_file = file; tw_line = line; }

void tw_register(const char *name, void (*function)(void), bool returns_status);
void tw_failed(const char *function, const char *reason) __attribute__((noreturn));

#ifdef __cplusplus
}
inline bool tw_returns_int(int (*)(const void *)) { return true; }
inline bool tw_returns_int(void (*)(const void *)) { return false; }
extern "C" {
#define TW_RETURNS_INT(func) tw_returns_int(func)
#else
#define TW_RETURNS_INT(func) _Generic(&(func), int (*)(const void *): true, default: false)
#endif

/* Make a function known to the host by its name. It gets a copy of the launch's argument; a status other than 0 that it
 * returns makes the launch fail. */
#define TPUKERNEL_FUNC_REGISTER(func)                                              \
    __attribute__((constructor)) static void tw_register_##func(void) {           \
        tw_register(#func, (void (*)(void))(func), TW_RETURNS_INT(func));          \
    }

#define TPUKERNEL_LOG(...) printf(__VA_ARGS__)
#define TPUKERNEL_DBG(...) ((void)0)
#define TPUKERNEL_ASSERT_INFO(condition, ...)                                      \
    do {                                                                           \
        if (!(condition)) {                                                        \
            TPUKERNEL_LOG(__VA_ARGS__);                                            \
            tw_at(__FILE__, __LINE__);                                             \
            tw_failed(__func__, #condition);                                       \
        }                                                                          \
    } while (0)
#define TPUKERNEL_ASSERT(condition) TPUKERNEL_ASSERT_INFO(condition, "%s", "")
#define TPUKERNEL_ERR(...) TPUKERNEL_ASSERT_INFO(0, __VA_ARGS__)

#ifndef UNUSED
#define UNUSED(x) ((void)(x))
#endif
#ifndef MIN
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#endif
#ifndef MAX
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#endif
#ifndef DIV_UP
#define DIV_UP(a, b) ((a) == 0 ? 0 : ((a) - 1) / (b) + 1)
#endif
#ifndef ALIGN
#define ALIGN(x, a) (DIV_UP(x, a) * (a))
#endif
#ifndef ALIGN_DOWN
#define ALIGN_DOWN(x, a) ((x) / (a) * (a))
#endif

#define NPU_NUM tpu_npu_num()
#define LOCAL_MEM_SIZE tpu_local_mem_size_per_npu()
#define LOCAL_MEM_BANKS tpu_bank_num()
#define BANK_SIZE (LOCAL_MEM_SIZE / LOCAL_MEM_BANKS)
#define L2_SRAM_SIZE tpu_l2_sram_size()

/* The bits of 1, -1, and the largest and lowest finite number of a float type. */
#define FP_ONE(dtype) ((dtype) == DT_FP32 ? 0x3F800000u : (dtype) == DT_FP16 ? 0x3C00u : 0x3F80u)
#define FP_NEG_ONE(dtype) ((dtype) == DT_FP32 ? 0xBF800000u : (dtype) == DT_FP16 ? 0xBC00u : 0xBF80u)
#define FP_MAX(dtype) ((dtype) == DT_FP32 ? 0x7F7FFFFFu : (dtype) == DT_FP16 ? 0x7BFFu : 0x7F7Fu)
#define FP_NEG_MAX(dtype) ((dtype) == DT_FP32 ? 0xFF7FFFFFu : (dtype) == DT_FP16 ? 0xFBFFu : 0xFF7Fu)

#ifdef __cplusplus
extern "C" {
#endif

void tpu_initialize(void);
void tpu_poll(void);
void tpu_hau_poll(void);
void tpu_parallel_start(void);
void tpu_parallel_end(void);
bool tpu_is_parallel_state(void);
unsigned int tpu_gdma_get_filter_num(void);
unsigned int tpu_gdma_mask_select_S2S_with_ret(
    system_addr_t dst, system_addr_t src, addr_t mask, int mask_is_local, const dim4 *shape, data_type_t dtype,
    data_type_t mask_dtype);
/* Commands have no queue of limited length here, and have ended when a kernel can ask. */
static inline int tpu_bdc_busy(void) { return 0; }
static inline int tpu_gdma_busy(void) { return 0; }
static inline int tpu_hau_sort_busy(void) { return 0; }
static inline int tpu_gdma_cmd_overflow(void) { return 0; }
static inline int tpu_hau_sort_cmd_overflow(void) { return 0; }
int tpu_gdma_shape_limit(int axis);
int tpu_gdma_move_max_wstride_byte_len(void);

int tpu_npu_num(void);
int tpu_bank_num(void);
int tpu_eu_num(data_type_t dtype);
int tpu_local_mem_size_per_npu(void);
unsigned int tpu_local_mem_get_start_addr(void);
int tpu_l2_sram_size(void);
unsigned long long tpu_l2_sram_get_start_addr(void);
int tpu_npu_index(local_addr_t addr);
int tpu_bank_index(local_addr_t addr);
range_t tpu_bank_range(local_addr_t addr, int size);
bool tpu_range_overlapped(const range_t *one, const range_t *other);
bool tpu_any_range_overlapped(const range_t *ranges, int count);
int tpu_channle_num_per_npu(int start, int channels);
int tpu_aligned_feature_size(int h, int w, data_type_t dtype);
void tpu_aligned_stride(dim4 *stride, int start, const dim4 *shape, data_type_t dtype);
void tpu_line_aligned_stride(dim4 *stride, int start, const dim4 *shape, data_type_t dtype);
void tpu_compact_stride(dim4 *stride, int start, const dim4 *shape);
void tpu_continuous_stride(dim4 *stride, const dim4 *shape);
int tpu_data_type_size(data_type_t dtype);
bool tpu_is_data_type_fp(data_type_t dtype);
bool tpu_is_data_type_signed(data_type_t dtype);
bool tpu_is_data_type_int(data_type_t dtype);
bool tpu_is_data_type_signed_int(data_type_t dtype);
bool tpu_is_data_type_unsigned_int(data_type_t dtype);

/* Conversions of one number. The machine's rules are asked for: about 50 us per call. */
scalar_t tpu_cast(scalar_t src, data_type_t dst_dtype, data_type_t src_dtype, rounding_mode_t mode);
scalar_t tpu_fp_cast(scalar_t src, data_type_t dst_dtype, data_type_t src_dtype, rounding_mode_t mode);
scalar_t tpu_fp_to_int_cast(scalar_t src, data_type_t dst_dtype, data_type_t src_dtype, rounding_mode_t mode);
scalar_t tpu_int_to_fp_cast(scalar_t src, data_type_t dst_dtype, data_type_t src_dtype, rounding_mode_t mode);
scalar_t tpu_int_cast(scalar_t src, data_type_t dst_dtype, data_type_t src_dtype);

/* Pointers into device memory, valid for one launch. What commands write is there after tpu_poll; what the kernel writes
 * is there for the commands that it calls later. A local address is one of lane 0 plus a lane, or one of all lanes. */
void *tpu_global_mem_addr(global_addr_t addr);
void *tpu_local_mem_addr(int lane, local_addr_t addr);
void *tpu_local_mem_addr_unified(local_addr_t addr);
void *tpu_l2_sram_addr(l2_sram_addr_t addr);

/* The processor of the simulated device has no cache: these do nothing. */
static inline void tpu_invalidate_cache(system_addr_t address, unsigned long long size) { (void)address; (void)size; }
static inline void tpu_flush_cache(system_addr_t address, unsigned long long size) { (void)address; (void)size; }

#ifdef __cplusplus
}
#endif

#define tpu_initialize() (tw_at(__FILE__, __LINE__), tpu_initialize())
#define tpu_poll() (tw_at(__FILE__, __LINE__), tpu_poll())
#define tpu_hau_poll() (tw_at(__FILE__, __LINE__), tpu_hau_poll())
#define tpu_parallel_start() (tw_at(__FILE__, __LINE__), tpu_parallel_start())
#define tpu_parallel_end() (tw_at(__FILE__, __LINE__), tpu_parallel_end())
#define tpu_gdma_get_filter_num() (tw_at(__FILE__, __LINE__), tpu_gdma_get_filter_num())
#define tpu_gdma_mask_select_S2S_with_ret(...) \
    (tw_at(__FILE__, __LINE__), tpu_gdma_mask_select_S2S_with_ret(__VA_ARGS__))
#define tpu_cast(...) (tw_at(__FILE__, __LINE__), tpu_cast(__VA_ARGS__))
#define tpu_fp_cast(...) (tw_at(__FILE__, __LINE__), tpu_fp_cast(__VA_ARGS__))
#define tpu_fp_to_int_cast(...) (tw_at(__FILE__, __LINE__), tpu_fp_to_int_cast(__VA_ARGS__))
#define tpu_int_to_fp_cast(...) (tw_at(__FILE__, __LINE__), tpu_int_to_fp_cast(__VA_ARGS__))
#define tpu_int_cast(...) (tw_at(__FILE__, __LINE__), tpu_int_cast(__VA_ARGS__))
#define tpu_global_mem_addr(...) (tw_at(__FILE__, __LINE__), tpu_global_mem_addr(__VA_ARGS__))
#define tpu_local_mem_addr(...) (tw_at(__FILE__, __LINE__), tpu_local_mem_addr(__VA_ARGS__))
#define tpu_local_mem_addr_unified(...) (tw_at(__FILE__, __LINE__), tpu_local_mem_addr_unified(__VA_ARGS__))
#define tpu_l2_sram_addr(...) (tw_at(__FILE__, __LINE__), tpu_l2_sram_addr(__VA_ARGS__))

#include "tpu_calls.h" /* all tpu_bdc_*, tpu_gdma_* and tpu_hau_* functions: made from the tables of the model */

#endif
