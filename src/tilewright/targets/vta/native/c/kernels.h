/* Kernels of micro-ops, and the micro-op cache. */
#ifndef TILEWRIGHT_VTA_KERNELS_H
#define TILEWRIGHT_VTA_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <vta/hw_spec.h>

#pragma GCC visibility push(hidden)

struct tw_loop {
    uint32_t extent, dst, src, wgt;
};

/* The fields that all micro-ops of a kernel share. `mode` is 0 for GEMM, 1 for ALU. */
struct tw_operation {
    uint32_t mode, reset, opcode, use_imm;
    int32_t imm;
};

struct tw_kernel {
    struct tw_kernel *next;
    uint32_t mode, size; /* the key: mode and signature of `size` bytes */
    void *signature;
    struct tw_operation op;
    struct tw_loop loops[2];
    uint32_t loop_count, open;
    VTAUop *uops;
    uint32_t count, room;
    uint64_t run; /* the run in which the kernel has list `list` */
    uint32_t list;
};

/* The distinct lists of micro-ops of a run, in DRAM in the order of first use, and their positions in the caches. */
struct tw_lists {
    VTAUop *uops; /* in DRAM */
    uint32_t count;
    struct tw_list {
        uint32_t offset, count;
        int64_t base[2]; /* in the caches of GEMM and ALU, which may be equal; -1: not in the cache */
    } *lists;
    uint32_t list_count, room;
    uint32_t write[2]; /* the position of the next list in each cache */
};

/* Return the kernel of a handle with a mode and signature; if there is none, make a new kernel. */
struct tw_kernel *tw_find_kernel(const char *call, void **handle, uint32_t mode, const void *signature, int size);
int tw_is_recorded(const struct tw_kernel *kernel);

/* Record a kernel. The program ends if an instruction cannot run it. */
void tw_push_uop(
    struct tw_kernel *kernel, const struct tw_operation *op, uint32_t dst, uint32_t src, uint32_t wgt);
void tw_begin_loop(struct tw_kernel *kernel, struct tw_loop loop);
void tw_end_loop(struct tw_kernel *kernel);
void tw_finish_kernel(const char *call, struct tw_kernel *kernel);

/* The instruction's loops. */
void tw_nest(const struct tw_kernel *kernel, struct tw_loop *outer, struct tw_loop *inner);

/* Whether the kernel's ALU operation reads factors from the memory of parameters, from index wgt on. */
int tw_takes_factors(const struct tw_kernel *kernel);

/* Return the cache position of a kernel's micro-ops; call `load` if they are missing. `run`: the number of the run. */
uint32_t tw_in_cache(
    const char *call, struct tw_lists *lists, struct tw_kernel *kernel, uint64_t run,
    void (*load)(uint32_t memory, uint32_t base, uint32_t offset, uint32_t count));

/* Begin a run: no lists, and empty caches. */
void tw_empty(struct tw_lists *lists);

#pragma GCC visibility pop
#endif
