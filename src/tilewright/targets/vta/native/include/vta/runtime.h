/* VTA's runtime API: buffers, and a command queue that builds instructions, micro-ops and tokens.
 *
 *     c++ host.cc $(tilewright config --vta --cflags --libs)
 *
 * Names and types are those of vta/runtime/runtime.h in the last release of TVM that had it. docs/vta.md, Runtime,
 * describes the rules. A wrong argument ends the program with one message on stderr.
 */
#ifndef VTA_RUNTIME_RUNTIME_H_
#define VTA_RUNTIME_RUNTIME_H_

#include <vta/driver.h>

#ifndef TVM_DLL
#define TVM_DLL
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The direction of VTABufferCopy: bit 0 for a buffer as target, bit 1 for a buffer as source. */
#define VTA_MEMCPY_H2D 1
#define VTA_MEMCPY_D2H 2
#define VTA_MEMCPY_D2D 3

/* Flags of VTASetDebugMode. The memory is coherent, so there are no barriers to skip. */
#define VTA_DEBUG_DUMP_INSN (1 << 1) /* print the instructions of each run on stdout */
#define VTA_DEBUG_DUMP_UOP (1 << 2) /* print the micro-ops of each new kernel on stdout */
#define VTA_DEBUG_SKIP_READ_BARRIER (1 << 3)
#define VTA_DEBUG_SKIP_WRITE_BARRIER (1 << 4)
#define VTA_DEBUG_FORCE_SERIAL (1 << 5) /* one instruction after another, whatever the tokens */
#define VTA_DEBUG_LOG_INSN (1 << 6) /* print the cycles of each run on stderr */

/* The program's command queue. Threads that record must take turns. */
typedef void *VTACommandHandle;
TVM_DLL VTACommandHandle VTATLSCommandHandle(void);
TVM_DLL void VTARuntimeShutdown(void);
TVM_DLL void VTASetDebugMode(VTACommandHandle cmd, int debug_flag);

/* Buffers. The handle is not a pointer to the bytes: VTABufferCPUPtr returns that. Offsets and sizes are in bytes. */
TVM_DLL void *VTABufferAlloc(size_t size);
TVM_DLL void VTABufferFree(void *buffer);
TVM_DLL void *VTABufferCPUPtr(VTACommandHandle cmd, void *buffer);
TVM_DLL void VTABufferCopy(
    const void *from, size_t from_offset, void *to, size_t to_offset, size_t size, int kind_mask);
TVM_DLL void VTAWriteBarrier(
    VTACommandHandle cmd, void *buffer, uint32_t elem_bits, uint32_t start, uint32_t extent);
TVM_DLL void VTAReadBarrier(
    VTACommandHandle cmd, void *buffer, uint32_t elem_bits, uint32_t start, uint32_t extent);

/* Record a LOAD of `y_size` rows of `x_size` tiles from tile `src_elem_offset` of a buffer on; rows are `x_stride`
 * tiles apart. On chip, the tiles are consecutive from `dst_sram_index` on, with rows and columns of zeros around. */
TVM_DLL void VTALoadBuffer2D(
    VTACommandHandle cmd, void *src_dram_addr, uint32_t src_elem_offset, uint32_t x_size, uint32_t y_size,
    uint32_t x_stride, uint32_t x_pad_before, uint32_t y_pad_before, uint32_t x_pad_after, uint32_t y_pad_after,
    uint32_t dst_sram_index, uint32_t dst_memory_type);

/* Record a STORE of tiles from `src_sram_index` on, to rows of a buffer as in VTALoadBuffer2D. */
TVM_DLL void VTAStoreBuffer2D(
    VTACommandHandle cmd, uint32_t src_sram_index, uint32_t src_memory_type, void *dst_dram_addr,
    uint32_t dst_elem_offset, uint32_t x_size, uint32_t y_size, uint32_t x_stride);

/* For the callbacks of VTAPushGEMMOp (mode 0) and VTAPushALUOp (mode 1): record a micro-op, begin or end a loop around
 * all micro-ops, which adds the factors to their indices in each iteration. Mode, reset, opcode and immediate must be
 * the same in the whole kernel. */
TVM_DLL void VTAUopPush(
    uint32_t mode, uint32_t reset_out, uint32_t dst_index, uint32_t src_index, uint32_t wgt_index, uint32_t opcode,
    uint32_t use_imm, int32_t imm_val);
TVM_DLL void VTAUopLoopBegin(uint32_t extent, uint32_t dst_factor, uint32_t src_factor, uint32_t wgt_factor);
TVM_DLL void VTAUopLoopEnd(void);

/* Record an instruction that runs a kernel of micro-ops. `finit(signature)` records the kernel at its first use and
 * returns 0; `*uop_handle`, NULL at first, keeps the kernels by the `nbytes` bytes of their signatures. Returns 0. */
TVM_DLL int VTAPushGEMMOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes);
TVM_DLL int VTAPushALUOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes);

/* Let a stage push a token when its last instruction ends, or wait for one before its next. Stages count from 1: load,
 * compute, store; with four stages load, gemm, activate, store. Returns 0. */
TVM_DLL int VTADepPush(VTACommandHandle cmd, int from_qid, int to_qid);
TVM_DLL int VTADepPop(VTACommandHandle cmd, int from_qid, int to_qid);

/* Run the recorded instructions. The program ends if they cannot end, or need more than `wait_cycles` cycles. */
TVM_DLL void VTASynchronize(VTACommandHandle cmd, uint32_t wait_cycles);

#ifdef __cplusplus
}
#endif
#endif
