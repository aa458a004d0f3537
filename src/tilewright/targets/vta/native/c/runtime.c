/* The runtime: buffers, and the command queue. It has the rules of the Python runtime (runtime/ and
 * isa/instructions.py), so that both make the same instructions. hostlib.py writes tables of the machine from Python
 * (vta_machine.h).
 *
 * Instructions and micro-ops are written directly to the memory of the machine.
 */
#include <string.h>
#include <vta/hw_spec.h>
#include <vta/runtime.h>

#include "driver.h"
#include "kernels.h"
#include "vta_machine.h"

/* An instruction; its token bits lie in the first word. */
typedef union {
    union VTAInsn is;
    uint64_t word[2];
} insn;

/* Free room to keep, in instructions: more than one call and the end of a run add together. */
enum { RESERVE = 16, MOST = VTA_MAX_XFER / sizeof(insn) };

struct buffer {
    struct buffer *next;
    uint8_t *data;
    size_t size;
    uint64_t used; /* the run (queue.run) whose instructions use the buffer */
};

static struct buffer *buffers;
static struct {
    VTADeviceHandle device; /* NULL: there is no queue */
    insn *insns;
    size_t count;
    uint64_t pending[TW_UNITS]; /* the pop bits for the next instruction of each unit */
    struct tw_lists lists;
    struct tw_kernel *recorded; /* by the active callback */
    uint64_t run;
    int debug;
} queue = {.run = 1};

static void use(const char *call) {
    if (queue.device) return;
    queue.insns = tw_allocate(call, VTA_MAX_XFER, TW_INSNS);
    queue.lists.uops = tw_allocate(call, VTA_MAX_XFER, TW_UOPS);
    queue.device = VTADeviceAlloc();
}

static void forget(void) {
    queue.count = 0;
    memset(queue.pending, 0, sizeof queue.pending);
    tw_empty(&queue.lists);
    queue.run++;
}

static void check(const char *call, VTACommandHandle cmd) {
    if (!cmd || cmd != queue.device) tw_refuse(call, "%p is no command handle; call VTATLSCommandHandle", cmd);
}

static struct buffer *buffer_of(const char *call, const void *handle) {
    for (struct buffer *it = buffers; it; it = it->next)
        if (it == handle) return it;
    tw_refuse(call, "%p is no buffer of VTABufferAlloc (or it is freed)", (void *)(uintptr_t)handle);
}

VTACommandHandle VTATLSCommandHandle(void) {
    use("VTATLSCommandHandle");
    return queue.device;
}

void VTARuntimeShutdown(void) {
    if (!queue.device) return;
    forget();
    VTADeviceFree(queue.device);
    VTAMemFree(queue.insns);
    VTAMemFree(queue.lists.uops);
    queue.device = NULL;
    queue.debug = 0;
}

void VTASetDebugMode(VTACommandHandle cmd, int debug_flag) {
    check("VTASetDebugMode", cmd);
    queue.debug = debug_flag;
}

/* Buffers */

void *VTABufferAlloc(size_t size) {
    struct buffer *made = malloc(sizeof *made);
    void *data = tw_allocate("VTABufferAlloc", size, TW_NUMBERED);
    if (!made || !data) exit(EXIT_FAILURE); /* tw_allocate has printed the reason */
    *made = (struct buffer){buffers, data, size, 0};
    return buffers = made;
}

void VTABufferFree(void *buffer) {
    struct buffer *old = buffer_of("VTABufferFree", buffer), **at = &buffers;
    if (old->used == queue.run)
        tw_refuse("VTABufferFree", "recorded instructions use the buffer; call VTASynchronize first");
    while (*at != old) at = &(*at)->next;
    *at = old->next;
    VTAMemFree(old->data);
    free(old);
}

void *VTABufferCPUPtr(VTACommandHandle cmd, void *buffer) {
    (void)cmd; /* upstream's runtime does not use it either */
    return buffer_of("VTABufferCPUPtr", buffer)->data;
}

static uint8_t *part(const char *side, const void *given, size_t offset, size_t size, int is_buffer) {
    if (!is_buffer) return (uint8_t *)(uintptr_t)given + offset;
    struct buffer *it = buffer_of("VTABufferCopy", given);
    if (offset > it->size || size > it->size - offset)
        tw_refuse("VTABufferCopy", "%zu bytes from byte %zu of %s: the buffer has %zu", size, offset, side, it->size);
    return it->data + offset;
}

void VTABufferCopy(const void *from, size_t from_offset, void *to, size_t to_offset, size_t size, int kind_mask) {
    if (kind_mask < VTA_MEMCPY_H2D || kind_mask > VTA_MEMCPY_D2D)
        tw_refuse("VTABufferCopy", "kind_mask is %d; give VTA_MEMCPY_H2D, _D2H or _D2D", kind_mask);
    uint8_t *source = part("from", from, from_offset, size, kind_mask & 2);
    memmove(part("to", to, to_offset, size, kind_mask & 1), source, size);
}

void VTAWriteBarrier(VTACommandHandle cmd, void *buffer, uint32_t elem_bits, uint32_t start, uint32_t extent) {
    (void)elem_bits, (void)start, (void)extent;
    check("VTAWriteBarrier", cmd);
    buffer_of("VTAWriteBarrier", buffer);
}

void VTAReadBarrier(VTACommandHandle cmd, void *buffer, uint32_t elem_bits, uint32_t start, uint32_t extent) {
    (void)elem_bits, (void)start, (void)extent;
    check("VTAReadBarrier", cmd);
    buffer_of("VTAReadBarrier", buffer);
}

/* Instructions and tokens */

static int unit_of(const insn *it) {
    int moves = it->is.mem.opcode == VTA_OPCODE_LOAD || it->is.mem.opcode == VTA_OPCODE_STORE;
    return tw_unit_of[it->is.mem.opcode][moves ? it->is.mem.memory_type : 0];
}

static void add(insn made) {
    uint64_t *pending = &queue.pending[unit_of(&made)];
    made.word[0] |= *pending;
    *pending = 0;
    queue.insns[queue.count++] = made;
}

static void nop(int unit) {
    insn made = {.word = {0, 0}};
    made.is.mem.opcode = tw_nop[unit][0];
    made.is.mem.memory_type = tw_nop[unit][1];
    add(made);
}

/* Add a NOP with the pops that wait for the next instruction of a unit. */
static void commit(int unit) {
    if (queue.pending[unit]) nop(unit);
}

/* Check that a call can record. The first call makes the queue. */
static void room(const char *call) {
    use(call);
    if (queue.recorded) tw_refuse(call, "is called by the callback that records a kernel");
    if (queue.count + RESERVE >= MOST)
        tw_refuse(
            call, "the command buffer of %d KiB is full (%zu instructions); call VTASynchronize earlier, where every "
            "pushed token has been popped", VTA_MAX_XFER >> 10, queue.count);
}

static void push_token(int source, int target) {
    uint64_t push = tw_link[source][target].push;
    commit(source);
    insn *last = queue.count ? &queue.insns[queue.count - 1] : NULL;
    int empty = last && last->is.mem.opcode == VTA_OPCODE_LOAD && !last->is.mem.x_size;
    if (!last || unit_of(last) != source || empty || last->word[0] & push) nop(source);
    queue.insns[queue.count - 1].word[0] |= push;
}

static void pop_token(int source, int target) {
    uint64_t pop = tw_link[source][target].pop;
    if (queue.pending[target] & pop) commit(target);
    queue.pending[target] |= pop;
}

static void check_queue(const char *call, VTACommandHandle cmd, int from, int to) {
    check(call, cmd);
    room(call);
    if (from < 1 || from > TW_UNITS || to < 1 || to > TW_UNITS || !tw_link[from - 1][to - 1].push)
        tw_refuse(call, "there is no token queue from stage %d to %d; the stages are %s", from, to, tw_units);
}

int VTADepPush(VTACommandHandle cmd, int from_qid, int to_qid) {
    check_queue("VTADepPush", cmd, from_qid, to_qid);
    push_token(from_qid - 1, to_qid - 1);
    return 0;
}

int VTADepPop(VTACommandHandle cmd, int from_qid, int to_qid) {
    check_queue("VTADepPop", cmd, from_qid, to_qid);
    pop_token(from_qid - 1, to_qid - 1);
    return 0;
}

/* Set a field of an instruction. The program ends if the value does not fit it. */
#define SET(call, it, field, value)                                                      \
    do {                                                                                 \
        long long tw_value = (value);                                                    \
        (it).field = tw_value;                                                           \
        if ((it).field != tw_value) tw_refuse(call, #field " is %lld, too large", tw_value); \
    } while (0)

static void transfer(
    const char *call, int opcode, uint32_t memory, uint32_t sram, void *handle, uint32_t offset, uint32_t rows,
    uint32_t columns, uint32_t stride, const uint32_t pads[4]) {
    room(call);
    struct buffer *buffer = buffer_of(call, handle);
    const struct tw_memory *chip = memory < 8 ? &tw_memory[memory] : NULL;
    if (!chip || !(opcode == VTA_OPCODE_LOAD ? chip->loads : memory == VTA_MEM_ID_OUT))
        tw_refuse(
            call, "memory type %u cannot be used here; choose %s", memory,
            opcode == VTA_OPCODE_LOAD ? tw_loaded : "VTA_MEM_ID_OUT");
    uint64_t first = (uint64_t)VTAMemGetPhyAddr(buffer->data) / chip->bytes + offset;
    uint64_t tiles = ((uint64_t)pads[0] + rows + pads[1]) * ((uint64_t)pads[2] + columns + pads[3]);
    if (rows > UINT16_MAX || columns > UINT16_MAX) tw_refuse(call, "%u rows of %u tiles are too large", rows, columns);
    uint64_t end = rows && columns ? offset + (uint64_t)(rows - 1) * stride + columns : 0;
    if (sram + tiles > chip->depth)
        tw_refuse(
            call, "SRAM index %u with %llu tiles is outside %s, which has %u", sram, (unsigned long long)tiles,
            chip->name, chip->depth);
    if (end * chip->bytes > buffer->size)
        tw_refuse(
            call, "offset %u with %u rows of %u tiles, %u apart, reaches to tile %llu; the buffer of %zu bytes has %zu "
            "tiles of %s", offset, rows, columns, stride, (unsigned long long)end, buffer->size,
            buffer->size / chip->bytes, chip->name);
    insn made = {.word = {0, 0}};
    made.is.mem.opcode = opcode;
    made.is.mem.memory_type = memory;
    SET(call, made.is.mem, sram_base, sram);
    SET(call, made.is.mem, dram_base, first);
    SET(call, made.is.mem, y_size, rows);
    SET(call, made.is.mem, x_size, columns);
    SET(call, made.is.mem, x_stride, stride);
    SET(call, made.is.mem, y_pad_0, pads[0]);
    SET(call, made.is.mem, y_pad_1, pads[1]);
    SET(call, made.is.mem, x_pad_0, pads[2]);
    SET(call, made.is.mem, x_pad_1, pads[3]);
    buffer->used = queue.run;
    add(made);
}

void VTALoadBuffer2D(
    VTACommandHandle cmd, void *src_dram_addr, uint32_t src_elem_offset, uint32_t x_size, uint32_t y_size,
    uint32_t x_stride, uint32_t x_pad_before, uint32_t y_pad_before, uint32_t x_pad_after, uint32_t y_pad_after,
    uint32_t dst_sram_index, uint32_t dst_memory_type) {
    const uint32_t pads[] = {y_pad_before, y_pad_after, x_pad_before, x_pad_after};
    check("VTALoadBuffer2D", cmd);
    transfer(
        "VTALoadBuffer2D", VTA_OPCODE_LOAD, dst_memory_type, dst_sram_index, src_dram_addr, src_elem_offset, y_size,
        x_size, x_stride, pads);
}

void VTAStoreBuffer2D(
    VTACommandHandle cmd, uint32_t src_sram_index, uint32_t src_memory_type, void *dst_dram_addr,
    uint32_t dst_elem_offset, uint32_t x_size, uint32_t y_size, uint32_t x_stride) {
    const uint32_t pads[] = {0, 0, 0, 0};
    check("VTAStoreBuffer2D", cmd);
    transfer(
        "VTAStoreBuffer2D", VTA_OPCODE_STORE, src_memory_type, src_sram_index, dst_dram_addr, dst_elem_offset, y_size,
        x_size, x_stride, pads);
}

/* Kernels */

static struct tw_kernel *recorded(const char *call) {
    if (!queue.recorded) tw_refuse(call, "is called outside a callback of VTAPushGEMMOp or VTAPushALUOp");
    return queue.recorded;
}

void VTAUopPush(
    uint32_t mode, uint32_t reset_out, uint32_t dst_index, uint32_t src_index, uint32_t wgt_index, uint32_t opcode,
    uint32_t use_imm, int32_t imm_val) {
    const struct tw_operation op = {mode, reset_out, opcode, use_imm, imm_val};
    tw_push_uop(recorded("VTAUopPush"), &op, dst_index, src_index, wgt_index);
}

void VTAUopLoopBegin(uint32_t extent, uint32_t dst_factor, uint32_t src_factor, uint32_t wgt_factor) {
    tw_begin_loop(recorded("VTAUopLoopBegin"), (struct tw_loop){extent, dst_factor, src_factor, wgt_factor});
}

void VTAUopLoopEnd(void) { tw_end_loop(recorded("VTAUopLoopEnd")); }

static void load_uops(uint32_t memory, uint32_t base, uint32_t offset, uint32_t count) {
    insn made = {.word = {0, 0}};
    made.is.mem.opcode = VTA_OPCODE_LOAD;
    made.is.mem.memory_type = memory;
    made.is.mem.sram_base = base;
    made.is.mem.dram_base = VTAMemGetPhyAddr(queue.lists.uops) / VTA_UOP_ELEM_BYTES + offset;
    made.is.mem.y_size = 1;
    made.is.mem.x_size = count;
    made.is.mem.x_stride = count;
    add(made);
}

static int push(const char *call, uint32_t mode, void **handle, int (*finit)(void *), void *signature, int nbytes) {
    room(call);
    struct tw_kernel *kernel = tw_find_kernel(call, handle, mode, signature, nbytes);
    if (!tw_is_recorded(kernel)) {
        queue.recorded = kernel;
        if (finit(signature)) tw_refuse(call, "its callback failed");
        queue.recorded = NULL;
        tw_finish_kernel(call, kernel);
        if (queue.debug & VTA_DEBUG_DUMP_UOP) tw_print_uops(kernel->uops, kernel->count * sizeof *kernel->uops);
    }
    uint32_t begin = tw_in_cache(call, &queue.lists, kernel, queue.run, load_uops);
    struct tw_loop outer, inner;
    tw_nest(kernel, &outer, &inner);
    insn made = {.word = {0, 0}};
    made.is.gemm.opcode = mode ? VTA_OPCODE_ALU : VTA_OPCODE_GEMM;
    made.is.gemm.reset_reg = kernel->op.reset != 0;
    made.is.gemm.uop_bgn = begin;
    made.is.gemm.uop_end = begin + kernel->count;
    SET(call, made.is.gemm, iter_out, outer.extent);
    SET(call, made.is.gemm, iter_in, inner.extent);
    if (!mode) {
        SET(call, made.is.gemm, dst_factor_out, outer.dst);
        SET(call, made.is.gemm, dst_factor_in, inner.dst);
        SET(call, made.is.gemm, src_factor_out, outer.src);
        SET(call, made.is.gemm, src_factor_in, inner.src);
        SET(call, made.is.gemm, wgt_factor_out, outer.wgt);
        SET(call, made.is.gemm, wgt_factor_in, inner.wgt);
    } else {
        SET(call, made.is.alu, dst_factor_out, outer.dst);
        SET(call, made.is.alu, dst_factor_in, inner.dst);
        SET(call, made.is.alu, src_factor_out, outer.src);
        SET(call, made.is.alu, src_factor_in, inner.src);
        SET(call, made.is.alu, alu_opcode, kernel->op.opcode);
        made.is.alu.use_imm = kernel->op.use_imm != 0;
        int32_t imm = kernel->op.use_imm ? kernel->op.imm : 0;
        SET(call, made.is.alu, imm, tw_takes_factors(kernel) ? (int32_t)outer.wgt : imm);
    }
    add(made);
    return 0;
}

int VTAPushGEMMOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes) {
    return push("VTAPushGEMMOp", 0, uop_handle, finit, signature, nbytes);
}

int VTAPushALUOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes) {
    return push("VTAPushALUOp", 1, uop_handle, finit, signature, nbytes);
}

/* Running */

/* Let FINISH wait for all units: pass a token from each end of the pipeline to its unit. */
static void drain(void) {
    for (int unit = TW_UNITS - 1; unit > TW_HOME; unit--) {
        push_token(unit, unit - 1);
        if (unit - 1 > TW_HOME) pop_token(unit, unit - 1);
    }
    for (int unit = 0; unit < TW_HOME; unit++) {
        push_token(unit, unit + 1);
        if (unit + 1 < TW_HOME) pop_token(unit, unit + 1);
    }
    pop_token(TW_HOME + 1, TW_HOME);
    pop_token(TW_HOME - 1, TW_HOME);
    commit(TW_HOME);
}

void VTASynchronize(VTACommandHandle cmd, uint32_t wait_cycles) {
    int waiting = 0;
    check("VTASynchronize", cmd);
    if (queue.recorded) tw_refuse("VTASynchronize", "is called by the callback that records a kernel");
    for (int unit = 0; unit < TW_UNITS; unit++) waiting |= queue.pending[unit] != 0;
    if (!queue.count && !waiting) return;
    drain();
    insn finish = {.word = {VTA_OPCODE_FINISH, 0}};
    add(finish);
    vta_phy_addr_t first = VTAMemGetPhyAddr(queue.insns);
    size_t uops = queue.lists.count * sizeof *queue.lists.uops;
    if (tw_run(queue.device, first, queue.count, wait_cycles, queue.debug, uops))
        exit(EXIT_FAILURE); /* tw_run has printed the reason */
    forget();
}
