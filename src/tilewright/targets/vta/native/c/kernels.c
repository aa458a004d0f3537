/* Kernels and the micro-op cache, by the rules of runtime/uop_kernels.py and isa/instructions.py. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "vta_machine.h"

/* N: a micro-op must not write an accumulator tile that one of the N preceding micro-ops wrote. */
enum { DISTANCE = 2, MAX_LOOPS = 2, MOST = VTA_MAX_XFER / VTA_UOP_ELEM_BYTES };

static void *grown(void *old, size_t bytes) {
    void *made = realloc(old, bytes);
    if (!made) tw_refuse("micro-ops", "the host has no memory left");
    return made;
}

struct tw_kernel *tw_find_kernel(const char *call, void **handle, uint32_t mode, const void *signature, int size) {
    if (!handle || size < 0 || (size && !signature)) tw_refuse(call, "its handle or signature is NULL");
    for (struct tw_kernel *it = *handle; it; it = it->next)
        if (it->mode == mode && it->size == (uint32_t)size)
            if (!size || !memcmp(it->signature, signature, (size_t)size)) return it;
    struct tw_kernel *made = grown(NULL, sizeof *made);
    *made = (struct tw_kernel){.next = *handle, .mode = mode, .size = (uint32_t)size};
    if (size) made->signature = memcpy(grown(NULL, (size_t)size), signature, (size_t)size);
    *handle = made;
    return made;
}

int tw_is_recorded(const struct tw_kernel *kernel) { return kernel->count != 0; }

int tw_takes_factors(const struct tw_kernel *kernel) {
#ifdef VTA_ALU_OPCODE_REQ
    return kernel->mode && kernel->op.opcode == VTA_ALU_OPCODE_REQ;
#else
    return (void)kernel, 0;
#endif
}

void tw_push_uop(struct tw_kernel *kernel, const struct tw_operation *op, uint32_t dst, uint32_t src, uint32_t wgt) {
    const char *call = "VTAUopPush";
    if (kernel->open < kernel->loop_count)
        tw_refuse(call, "is called after VTAUopLoopEnd; record all micro-ops inside the loops");
    if (!kernel->count) kernel->op = *op;
    int same = op->mode == kernel->op.mode && op->reset == kernel->op.reset;
    same = same && (!op->mode || (op->opcode == kernel->op.opcode && op->use_imm == kernel->op.use_imm &&
                                  (!op->use_imm || op->imm == kernel->op.imm)));
    if (!same) tw_refuse(call, "mode, reset, opcode or immediate differ in one kernel; use another kernel");
    if (kernel->count == MOST) tw_refuse(call, "its kernel has more than %d micro-ops", MOST);
    VTAUop made = {.dst_idx = dst, .src_idx = src, .wgt_idx = wgt};
    if (made.dst_idx != dst || made.src_idx != src || made.wgt_idx != wgt)
        tw_refuse(call, "the micro-op %u, %u, %u has an index beyond the memories", dst, src, wgt);
    for (uint32_t back = 1; back <= DISTANCE && back <= kernel->count; back++)
        if (kernel->uops[kernel->count - back].dst_idx == dst)
            tw_refuse(
                call, "dst %u was written by one of the last %d micro-ops; the pipeline has not written it back yet",
                dst, DISTANCE);
    if (tw_takes_factors(kernel) && kernel->count && kernel->uops[0].wgt_idx != wgt)
        tw_refuse(call, "its kernel has several sets of factors; use one wgt, and let only the first loop change it");
    if (kernel->count == kernel->room) {
        kernel->room = 2 * kernel->room + 16;
        kernel->uops = grown(kernel->uops, kernel->room * sizeof *kernel->uops);
    }
    kernel->uops[kernel->count++] = made;
}

void tw_begin_loop(struct tw_kernel *kernel, struct tw_loop loop) {
    const char *call = "VTAUopLoopBegin";
    if (kernel->count) tw_refuse(call, "is called after VTAUopPush; begin loops before the first micro-op");
    if (kernel->loop_count == MAX_LOOPS) tw_refuse(call, "an instruction has at most %d loops", MAX_LOOPS);
    if (!loop.extent) tw_refuse(call, "extent is 0");
    kernel->loops[kernel->loop_count++] = loop;
    kernel->open++;
}

void tw_end_loop(struct tw_kernel *kernel) {
    if (!kernel->open) tw_refuse("VTAUopLoopEnd", "no loop is open");
    kernel->open--;
}

static int cache_of(const struct tw_kernel *kernel) { return kernel->mode && TW_ALU_UOPS != VTA_MEM_ID_UOP; }

static uint32_t depth_of(const struct tw_kernel *kernel) {
    return tw_memory[cache_of(kernel) ? TW_ALU_UOPS : VTA_MEM_ID_UOP].depth;
}

void tw_finish_kernel(const char *call, struct tw_kernel *kernel) {
    if (!kernel->count) tw_refuse(call, "its kernel records no micro-op");
    if (kernel->open) tw_refuse(call, "its kernel leaves %u loop(s) open; call VTAUopLoopEnd", kernel->open);
    if (kernel->op.mode != kernel->mode)
        tw_refuse(call, "its kernel has %s micro-ops", kernel->mode ? "GEMM" : "ALU");
    if (kernel->count > depth_of(kernel))
        tw_refuse(call, "its kernel has %u micro-ops; the cache has %u", kernel->count, depth_of(kernel));
    if (tw_takes_factors(kernel) && kernel->loop_count == MAX_LOOPS && kernel->loops[1].wgt)
        tw_refuse(call, "its kernel has several sets of factors in one outer iteration");
}

void tw_nest(const struct tw_kernel *kernel, struct tw_loop *outer, struct tw_loop *inner) {
    const struct tw_loop once = {1, 0, 0, 0};
    *outer = kernel->loop_count ? kernel->loops[0] : once;
    *inner = kernel->loop_count == MAX_LOOPS ? kernel->loops[1] : once;
    int moved = tw_takes_factors(kernel) && outer->wgt;
    if (kernel->loop_count == 1 && kernel->mode && !moved) {
        *inner = *outer;
        *outer = once;
    }
}

/* The number of a kernel's list in the run: an equal list, or a new one. */
static uint32_t listed(const char *call, struct tw_lists *to, const struct tw_kernel *kernel) {
    size_t bytes = kernel->count * sizeof *kernel->uops;
    for (uint32_t at = 0; at < to->list_count; at++)
        if (to->lists[at].count == kernel->count && !memcmp(to->uops + to->lists[at].offset, kernel->uops, bytes))
            return at;
    if (kernel->count > MOST - to->count)
        tw_refuse(call, "the micro-ops exceed %d KiB; call VTASynchronize earlier", VTA_MAX_XFER >> 10);
    if (to->list_count == to->room) {
        to->room = 2 * to->room + 16;
        to->lists = grown(to->lists, to->room * sizeof *to->lists);
    }
    memcpy(to->uops + to->count, kernel->uops, bytes);
    to->lists[to->list_count] = (struct tw_list){to->count, kernel->count, {-1, -1}};
    to->count += kernel->count;
    return to->list_count++;
}

uint32_t tw_in_cache(
    const char *call, struct tw_lists *lists, struct tw_kernel *kernel, uint64_t run,
    void (*load)(uint32_t memory, uint32_t base, uint32_t offset, uint32_t count)) {
    if (kernel->run != run) {
        kernel->list = listed(call, lists, kernel);
        kernel->run = run;
    }
    struct tw_list *found = &lists->lists[kernel->list];
    int cache = cache_of(kernel);
    if (found->base[cache] >= 0) return (uint32_t)found->base[cache];
    uint32_t *write = &lists->write[cache], base = *write + found->count <= depth_of(kernel) ? *write : 0;
    for (uint32_t at = 0; at < lists->list_count; at++) {
        struct tw_list *other = &lists->lists[at];
        int64_t there = other->base[cache];
        if (there >= 0 && there < (int64_t)base + found->count && base < there + other->count) other->base[cache] = -1;
    }
    load(cache ? TW_ALU_UOPS : VTA_MEM_ID_UOP, base, found->offset, found->count);
    found->base[cache] = base;
    *write = base + found->count;
    return base;
}

void tw_empty(struct tw_lists *lists) { lists->count = lists->list_count = lists->write[0] = lists->write[1] = 0; }
