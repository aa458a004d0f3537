/* The commands of Gemmini, by the names of gemmini.h of ucb-bar/gemmini-rocc-tests at 180c468.
 *
 *     cc test.c $(tilewright config --gemmini --cflags --libs)
 *
 * A command does not run on a RISC-V core: it is recorded, and a simulator in a process of its own runs it at the next
 * fence. Functions of many commands issue those of upstream, in the same order.
 */
#ifndef TILEWRIGHT_GEMMINI_COMMANDS_H
#define TILEWRIGHT_GEMMINI_COMMANDS_H

#undef abs

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/gemmini_params.h"
#include "rocc-software/src/xcustom.h"
#include "include/gemmini_counter.h"

/* The machine works in this process's memory, so nothing needs to be locked. */
#define mlockall(flags) 0

enum {
    k_CONFIG, k_MVIN2, k_MVIN, k_MVOUT, k_COMPUTE_PRELOADED, k_COMPUTE_ACCUMULATE, k_PRELOAD, k_FLUSH,
    k_LOOP_WS, k_LOOP_WS_CONFIG_BOUNDS, k_LOOP_WS_CONFIG_ADDRS_AB, k_LOOP_WS_CONFIG_ADDRS_DC,
    k_LOOP_WS_CONFIG_STRIDES_AB, k_LOOP_WS_CONFIG_STRIDES_DC, k_MVIN3,
    k_LOOP_CONV_WS, k_LOOP_CONV_WS_CONFIG_1, k_LOOP_CONV_WS_CONFIG_2, k_LOOP_CONV_WS_CONFIG_3,
    k_LOOP_CONV_WS_CONFIG_4, k_LOOP_CONV_WS_CONFIG_5, k_LOOP_CONV_WS_CONFIG_6,
    k_COUNTER = 126
};
#define CONFIG_EX 0
#define CONFIG_LD 1
#define CONFIG_ST 2
#define CONFIG_BERT 3

#define GARBAGE_ADDR ((uint32_t)(-1))
#define OUTPUT_STATIONARY 0
#define WEIGHT_STATIONARY 1

#define NO_ACTIVATION 0
#define RELU 1
#define LAYERNORM 2
#define IGELU 3
#define SOFTMAX 4

/* The bits of scales. */
static inline scale_t_bits scale_t_to_scale_t_bits(scale_t x) {
    scale_t_bits bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline scale_t scale_t_bits_to_scale_t(scale_t_bits bits) {
    scale_t x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline acc_scale_t_bits acc_scale_t_to_acc_scale_t_bits(acc_scale_t x) {
    acc_scale_t_bits bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline acc_scale_t acc_scale_t_bits_to_acc_scale_t(acc_scale_t_bits bits) {
    acc_scale_t x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A field of a register at a bit, and a local operand with its size. */
#define TW_AT(value, bit) ((uint64_t)(value) << (bit))
#define TW_LOCAL(address, cols, rows) (TW_AT(rows, ADDR_LEN + 16) | TW_AT(cols, ADDR_LEN) | (uint64_t)(address))

#define ROCC_INSTRUCTION_RS1_RS2(x, rs1, rs2, funct) ROCC_INSTRUCTION_0_R_R(x, rs1, rs2, funct)
#define TW_COMMAND(funct, rs1, rs2) ROCC_INSTRUCTION_RS1_RS2(XCUSTOM_ACC, rs1, rs2, funct)

/* Moves. */
#define gemmini_extended_mvin(dram_addr, spad_addr, cols, rows) \
    TW_COMMAND(k_MVIN, dram_addr, TW_LOCAL(spad_addr, cols, rows))
#define gemmini_extended_mvin2(dram_addr, spad_addr, cols, rows) \
    TW_COMMAND(k_MVIN2, dram_addr, TW_LOCAL(spad_addr, cols, rows))
#define gemmini_extended_mvin3(dram_addr, spad_addr, cols, rows) \
    TW_COMMAND(k_MVIN3, dram_addr, TW_LOCAL(spad_addr, cols, rows))
#define gemmini_extended_mvout(dram_addr, spad_addr, cols, rows) \
    TW_COMMAND(k_MVOUT, dram_addr, TW_LOCAL(spad_addr, cols, rows))
#define gemmini_block_mvin(dram_addr, spad_addr, len) gemmini_extended_mvin(dram_addr, spad_addr, (len) * DIM, DIM)
#define gemmini_mvin(dram_addr, spad_addr) gemmini_extended_mvin(dram_addr, spad_addr, DIM, DIM)
#define gemmini_mvout(dram_addr, spad_addr) gemmini_extended_mvout(dram_addr, spad_addr, DIM, DIM)

/* Products. */
#define gemmini_extended_compute_preloaded(A, BD, A_cols, A_rows, BD_cols, BD_rows) \
    TW_COMMAND(k_COMPUTE_PRELOADED, TW_LOCAL(A, A_cols, A_rows), TW_LOCAL(BD, BD_cols, BD_rows))
#define gemmini_extended_compute_accumulated(A, BD, A_cols, A_rows, BD_cols, BD_rows) \
    TW_COMMAND(k_COMPUTE_ACCUMULATE, TW_LOCAL(A, A_cols, A_rows), TW_LOCAL(BD, BD_cols, BD_rows))
#define gemmini_extended_preload(BD, C, BD_cols, BD_rows, C_cols, C_rows) \
    TW_COMMAND(k_PRELOAD, TW_LOCAL(BD, BD_cols, BD_rows), TW_LOCAL(C, C_cols, C_rows))
#define gemmini_compute_preloaded(A, BD) gemmini_extended_compute_preloaded(A, BD, DIM, DIM, DIM, DIM)
#define gemmini_compute_accumulated(A, BD) gemmini_extended_compute_accumulated(A, BD, DIM, DIM, DIM, DIM)
#define gemmini_preload(BD, C) gemmini_extended_preload(BD, C, DIM, DIM, DIM, DIM)
#define gemmini_preload_zeros(C) gemmini_preload(GARBAGE_ADDR, C)

/* Configuration. */
#define gemmini_extended3_config_ex( \
    dataflow, sys_act, sys_shift, sys_acc_scale, C_stride, A_stride, A_transpose, B_transpose, set_only_strides) \
    TW_COMMAND( \
        k_CONFIG, \
        TW_AT(acc_scale_t_to_acc_scale_t_bits((acc_scale_t)(sys_acc_scale)), 32) | TW_AT(A_stride, 16) \
            | TW_AT(B_transpose, 9) | TW_AT(A_transpose, 8) | TW_AT(set_only_strides, 7) | TW_AT(sys_act, 3) \
            | TW_AT(dataflow, 2) | CONFIG_EX, \
        TW_AT(C_stride, 48) | (uint64_t)(sys_shift))
#define gemmini_extended2_config_ex(dataflow, sys_act, sys_shift, A_stride, A_transpose, B_transpose) \
    gemmini_extended3_config_ex( \
        dataflow, sys_act, sys_shift, ACC_SCALE_IDENTITY, 1, A_stride, A_transpose, B_transpose, false)
#define gemmini_extended_config_ex(dataflow, sys_act, sys_shift, A_stride, A_transpose, B_transpose) \
    gemmini_extended2_config_ex(dataflow, sys_act, sys_shift, A_stride, A_transpose, B_transpose)
#define gemmini_config_ex(dataflow, sys_act, sys_shift) \
    gemmini_extended_config_ex(dataflow, sys_act, sys_shift, 1, 0, 0)

#define gemmini_extended5_config_ld(stride, scale, shrunk, block_mvin_stride, pixel_repeats, id) \
    TW_COMMAND( \
        k_CONFIG, \
        TW_AT(scale_t_to_scale_t_bits(scale), 32) | TW_AT(block_mvin_stride, 16) | TW_AT(pixel_repeats, 8) \
            | TW_AT(id, 3) | TW_AT(shrunk, 2) | CONFIG_LD, \
        stride)
#define gemmini_extended4_config_ld(stride, scale, shrunk, block_mvin_stride, id) \
    gemmini_extended5_config_ld(stride, scale, shrunk, block_mvin_stride, 1, id)
#define gemmini_extended3_config_ld(stride, scale, shrunk, id) \
    gemmini_extended4_config_ld(stride, scale, shrunk, DIM, id)
#define gemmini_extended2_config_ld(stride, scale, shrunk) gemmini_extended3_config_ld(stride, scale, shrunk, 0)
#define gemmini_extended_config_ld(stride, scale) gemmini_extended2_config_ld(stride, scale, false)
#define gemmini_config_ld(stride) gemmini_extended_config_ld(stride, MVIN_SCALE_IDENTITY)

#define gemmini_extended2_config_st( \
    stride, acc_act, acc_scale, pool_stride, pool_size, pool_out_dim, porows, pocols, orows, ocols, upad, lpad) \
    TW_COMMAND( \
        k_CONFIG, \
        TW_AT(ocols, 56) | TW_AT(orows, 48) | TW_AT(pocols, 40) | TW_AT(porows, 32) | TW_AT(pool_out_dim, 24) \
            | TW_AT(lpad, 10) | TW_AT(upad, 8) | TW_AT(pool_size, 6) | TW_AT(pool_stride, 4) | TW_AT(acc_act, 2) \
            | CONFIG_ST, \
        TW_AT(acc_scale_t_to_acc_scale_t_bits((acc_scale_t)(acc_scale)), 32) | (uint32_t)(stride))
#define gemmini_extended_config_st(stride, acc_act, acc_scale) \
    gemmini_extended2_config_st(stride, acc_act, acc_scale, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define gemmini_config_st(stride) gemmini_extended_config_st(stride, NO_ACTIVATION, ACC_SCALE_IDENTITY)

#define gemmini_config_norm(q_const, q_const_type, set_stats_id_only, act_msb, stat_id, igelu_qb, igelu_qc) \
    TW_COMMAND( \
        k_CONFIG, \
        TW_AT((uint32_t)(q_const), 32) | TW_AT((q_const_type) & 1, 18) | TW_AT((set_stats_id_only) & 1, 17) \
            | TW_AT((act_msb) & 1, 16) | TW_AT(stat_id, 8) | CONFIG_BERT, \
        TW_AT((uint32_t)(igelu_qc), 32) | (uint32_t)(igelu_qb))

#define gemmini_flush(skip) TW_COMMAND(k_FLUSH, skip, 0)
#define gemmini_fence() tw_gemmini_fence(__FILE__, __LINE__)

/* Hardware loops. */
#define gemmini_loop_ws( \
    I, J, K, pad_I, pad_J, pad_K, A, B, D, C, A_stride, B_stride, D_stride, C_stride, A_transpose, B_transpose, full_C, \
    low_D, ex_accumulate, act, a_spad_id, b_spad_id, is_resadd) \
    { \
        TW_COMMAND( \
            k_LOOP_WS_CONFIG_BOUNDS, TW_AT(pad_K, 32) | TW_AT(pad_J, 16) | (uint64_t)(pad_I), \
            TW_AT(K, 32) | TW_AT(J, 16) | (uint64_t)(I)) \
        TW_COMMAND(k_LOOP_WS_CONFIG_ADDRS_AB, A, B) \
        TW_COMMAND(k_LOOP_WS_CONFIG_ADDRS_DC, D, C) \
        TW_COMMAND(k_LOOP_WS_CONFIG_STRIDES_AB, A_stride, B_stride) \
        TW_COMMAND(k_LOOP_WS_CONFIG_STRIDES_DC, D_stride, C_stride) \
        TW_COMMAND( \
            k_LOOP_WS, \
            TW_AT(a_spad_id, 18) | TW_AT(b_spad_id, 16) | TW_AT(act, 8) | TW_AT(low_D, 2) | TW_AT(full_C, 1) \
                | (uint64_t)(ex_accumulate), \
            TW_AT(is_resadd, 2) | TW_AT(B_transpose, 1) | (uint64_t)(A_transpose)) \
    }

#define gemmini_loop_conv_ws( \
    batch_size, in_row_dim, in_col_dim, in_channels, out_channels, out_row_dim, out_col_dim, pool_out_row_dim, \
    pool_out_col_dim, stride, padding, kernel_dim, kernel_dilation, pool_size, pool_stride, pool_padding, batches, \
    porows, pocols, pochs, krows, kcols, kchs, lpad, rpad, upad, dpad, plpad, prpad, pupad, pdpad, orows, ocols, \
    weights, output, bias, input, no_bias, no_pool, downsample, wrot180, input_dilated, activation, \
    trans_output_1203, trans_weight_1203, trans_weight_0132, trans_input_3120, max_pixels_per_row, in_stride, \
    weight_stride, out_stride, dw, a_spad_id, b_spad_id) \
    { \
        TW_COMMAND( \
            k_LOOP_CONV_WS_CONFIG_1, \
            TW_AT(out_channels, 48) | TW_AT(in_channels, 32) | TW_AT(in_row_dim, 16) | (uint64_t)(batch_size), \
            TW_AT(padding, 56) | TW_AT(stride, 48) | TW_AT(out_col_dim, 32) | TW_AT(pool_out_row_dim, 16) \
                | (uint64_t)(out_row_dim)) \
        TW_COMMAND( \
            k_LOOP_CONV_WS_CONFIG_2, \
            TW_AT(kernel_dim, 48) | TW_AT(pool_out_col_dim, 32) | TW_AT(pool_size, 16) | TW_AT(pool_stride, 8) \
                | (uint64_t)(pool_padding), \
            TW_AT(batches, 48) | TW_AT(porows, 32) | TW_AT(pocols, 16) | (uint64_t)(pochs)) \
        TW_COMMAND( \
            k_LOOP_CONV_WS_CONFIG_3, \
            TW_AT(krows, 48) | TW_AT(kcols, 32) | TW_AT(kchs, 16) | (uint64_t)(lpad), \
            TW_AT(rpad, 48) | TW_AT(upad, 32) | TW_AT(dpad, 24) | TW_AT(plpad, 16) | (uint64_t)(in_col_dim)) \
        TW_COMMAND( \
            k_LOOP_CONV_WS_CONFIG_4, \
            TW_AT(orows, 48) | TW_AT(prpad, 32) | TW_AT(pupad, 21) | TW_AT(pdpad, 10) | (uint64_t)(kernel_dilation), \
            TW_AT(in_stride, 48) | TW_AT(weight_stride, 32) | TW_AT(out_stride, 16) | (uint64_t)(ocols)) \
        TW_COMMAND(k_LOOP_CONV_WS_CONFIG_5, weights, output) \
        TW_COMMAND(k_LOOP_CONV_WS_CONFIG_6, bias, input) \
        TW_COMMAND( \
            k_LOOP_CONV_WS, \
            TW_AT(a_spad_id, 18) | TW_AT(b_spad_id, 16) | TW_AT(max_pixels_per_row, 8) | TW_AT(dw, 6) \
                | TW_AT(trans_input_3120, 5) | TW_AT(trans_weight_0132, 4) | TW_AT(trans_weight_1203, 3) \
                | TW_AT(trans_output_1203, 2) | TW_AT(wrot180, 1) | (uint64_t)(no_bias), \
            TW_AT(activation, 3) | TW_AT(input_dilated, 2) | TW_AT(downsample, 1) | (uint64_t)(no_pool)) \
    }

/* Functions of many commands. */
enum tiled_matmul_type_t { OS, WS, CPU };

#include "tilewright/cpu.h"
#include "tilewright/matmul.h"
#include "tilewright/conv.h"
#include "tilewright/conv_api.h"
#include "tilewright/others.h"

#undef abs

#endif
