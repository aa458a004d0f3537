/* Types of the device API. Numbers of types and rounding modes are those of the machine. */
#ifndef TPU_DEFS_H
#define TPU_DEFS_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned int local_addr_t;           /* bytes from the start of local memory */
typedef unsigned int static_addr_t;          /* bytes from the start of static memory */
typedef unsigned long long l2_sram_addr_t;   /* bus addresses */
typedef unsigned long long system_addr_t;
typedef unsigned long long global_addr_t;
typedef unsigned long long addr_t;           /* a local address or a bus address */

typedef enum {
    DT_UINT8 = 0, DT_INT8 = 1, DT_FP16 = 3, DT_FP32 = 5, DT_UINT16 = 6,
    DT_INT16 = 7, DT_UINT32 = 8, DT_INT32 = 9, DT_BFP16 = 11,
    /* Types of other machines, which published kernels mention. This machine refuses them. */
    DT_UINT4 = 12, DT_INT4 = 13, DT_FP8E5M2 = 15, DT_FP8E4M3 = 47, DT_FP20 = 17, DT_TF32 = 19
} data_type_t;

typedef enum {
    RM_HALF_TO_EVEN, RM_HALF_AWAY_FROM_ZERO, RM_TOWARDS_ZERO, RM_DOWN, RM_UP, RM_HALF_UP, RM_HALF_DOWN
} rounding_mode_t;

typedef struct { int n, c, h, w; } dim4;
typedef struct { int h, w; } dim2;
typedef struct { int top, bottom, left, right; } padding_t;
typedef struct { int start, end; } range_t;

typedef union {
    unsigned short bits;
    struct { unsigned short frac : 10, exp : 5, sign : 1; } format;
} float16;
typedef union {
    unsigned short bits;
    struct { unsigned short frac : 7, exp : 8, sign : 1; } format;
} bfloat16;
typedef union {
    unsigned int u32;
    int s32;
    float f32;
    short s16;
    unsigned short u16;
    float16 f16;
    bfloat16 bf16;
    signed char s8;
    unsigned char u8;
} scalar_t;

typedef enum { TENSOR, SCALAR, VECTOR } var_type_t;
typedef union { scalar_t scalar; local_addr_t addr; } var_context_t;
typedef struct { var_type_t type; var_context_t context; } variable_t;

#endif
