"""The registers of the machine as one array of numbers per kind, which the units in this folder share.

`chip.s` holds single registers, `chip.p` the parameters; their names below are indices. Names of queues index `chip.n`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion

#: Parameters, indices of `Chip.p`.
(
    DIM,
    SPAD_BANKS,
    SPAD_SHIFT,  # log2 of the rows of a scratchpad bank
    SPAD_MASK,  # rows of the scratchpad, less one
    ACC_SHIFT,
    ACC_MASK,
    ROW_MASK,  # the row index in a local address
    GARBAGE,  # the bits that the hardware tests for "no operand"
    MAX_BYTES,
    BUS,
    READS,
    WRITES,
    LATENCY,
    RS_LD,
    RS_EX,
    RS_ST,
    SLOTS,  # commands that a command tracker holds
    MESH,  # cycles from the array's input of a row to its result
    ONLY_WS,
    PARAMETERS,
) = range(20)

#: Queues, indices of `Chip.n`. Those from FIRST_PIPED on take an element in the cycle in which a full one loses one.
(
    RAW,
    CONV,
    MATMUL,
    UNROLLED,
    LOADS,
    PRELOADS,  # of the unroller of transposed preloads
    EXECUTES,
    STORES,
    DISPATCH,
    NORM,
    PASS,  # of the absent normaliser
    SCALE,
    SPAD_REGS,  # rows in the mvin scale unit of the scratchpad
    TAGS,
    TOTALS,
    A_READ,  # requests of the reader behind its translation
    A_WRITE,
    A_OUT,
    D_IN,
    D_READ,
    D_WRITE,
    READ_ISSUE,
    CONTROL,  # of the array
    WRITE_ISSUE,
    QUEUES,
) = range(25)
FIRST_PIPED = READ_ISSUE

#: Single registers, indices of `Chip.s`.
(
    ACTIVE,  # a register changed in this cycle
    NEXT_COMMAND,
    NEXT_ORDER,
    LAST_BUSY,
    SOLITARY,  # the reservation station got a preload, but not yet its compute
    EX_DONE,  # the entry that a controller completes in this cycle, -1 if none
    LD_DONE,  # the slot of the tracker whose command is complete, -1 if none
    ST_DONE,
    UNISSUED_LD,
    UNISSUED_EX,
    UNISSUED_ST,
    RS_A_STRIDE,
    RS_C_STRIDE,
    RS_A_TRANSPOSE,
    RS_POOLING,
    RS_BLOCK,  # three load states
    RS_BLOCK_1,
    RS_BLOCK_2,
    RS_PIXELS,
    RS_PIXELS_1,
    RS_PIXELS_2,
    LD_STATE,
    LD_ROW,
    LD_SLOT,
    LD_ALL,  # all slots of the tracker were in use when the cycle began
    ST_STATE,
    ST_SLOT,
    ST_ALL,
    ST_ROW,
    ST_BLOCK,
    ST_PROW,
    ST_PCOL,
    ST_WROW,
    ST_WCOL,
    ST_STRIDE,
    ST_POOL_STRIDE,
    ST_POOL_SIZE,
    ST_OUT_DIM,
    ST_POROWS,
    ST_POCOLS,
    ST_OROWS,
    ST_OCOLS,
    ST_UPAD,
    ST_LPAD,
    ST_ITEM,  # the next row of `Chip.stores`
    RC_BUSY,
    RC_SLOT,
    RC_VADDR,
    RC_ADDR,
    RC_ASKED,
    RC_NEXT,  # where the search for a free transaction begins
    RT_VALID,  # the reader's request before translation
    RT_ITEM,
    RT_PAGE,
    RX_VALID,  # and behind it
    RX_ITEM,
    RX_PAGE,
    RX_HIT,
    R_PAGE,  # the page translated last
    R_XACTS,  # transactions in flight
    R_FREED,  # the cycle in which one ended
    RT_HIT,
    RX_OK,
    WT_HIT,
    WX_OK,
    W_FREED,
    PIPE_FULL,
    FLUSH_FIRED,
    MAY_ASK,
    TURN,
    MV_ITEM,  # the next row of `Chip.rows`
    BM_VALID,
    BM_XACT,
    BM_READ,
    BM_SENT,
    BM_SLOT,
    BM_BYTES,
    BM_SHIFT,
    BM_SIZE,
    BM_OFFSET,
    BM_ADDR,
    VI_VALID,
    VI_ITEM,
    VI_REPEATS,
    LANE_LAST,
    AI_VALID,
    AI_ITEM,
    AI_REPEATS,
    MR_VALID,  # the repeater of pixels of moved rows
    MR_ITEM,
    MR_PIXELS,
    MR_ADDR,
    MR_LAST,
    ZW_VALID,
    ZW_SLOT,
    ZW_ADDR,
    ZW_COLUMN,
    ZR_VALID,
    ZR_SLOT,
    ZR_PIXELS,
    ZR_ADDR,
    ZR_LAST,
    SPAD_WRITES,  # scratchpad banks written in this cycle, one bit each
    ACC_WRITES,  # accumulator banks with a write offered
    ACC_ADDS,  # and with one that accumulates
    EX_READS,  # scratchpad banks that the array asks to read
    WR_STATE,
    WR_VADDR,
    WR_LEN,
    WR_SENT,
    WR_BEATS,
    WR_LEFT,
    WR_BYTES,
    WR_ADDR,
    WR_XACT,
    WT_VALID,
    WT_ITEM,
    WT_PAGE,
    WX_VALID,
    WX_ITEM,
    WX_PAGE,
    WX_ASKED,
    WX_HIT,
    SH_VALID,
    SH_ITEM,
    SH_PAGE,
    W_PAGE,
    W_XACTS,
    TLB_LAST,
    PIPE,  # the accumulator's scale pipeline, a bit per stage
    XBAR_LAST,
    XBAR_LEFT,
    MEM_HEAD,
    MEM_N,
    MEM_BEAT,
    MEM_PUT,
    X_STATE,
    X_MODE,
    X_ITEM,  # the next row of `Chip.commands`
    X_OS,
    X_AT,
    X_BT,
    X_A_STRIDE,
    X_C_STRIDE,
    X_TOTAL,
    X_A,
    X_B,
    X_D,
    X_A_ROWS,
    X_B_ROWS,
    X_D_ROWS,
    X_A_POPS,
    X_B_POPS,
    X_D_POPS,
    CA,
    CB,
    CD,
    SA,
    SB,
    SD,
    A_OFFSET,
    UN_STATE,
    UN_TRANSPOSE,
    PENDING,
    PENDING_1,
    OP_ITEM,  # the next row of `Chip.ops`
    M_VALID,
    M_TOTAL,
    M_FLUSH,
    M_FIRED,
    M_ID,
    M_A,
    M_B,
    M_D,
    M_OUT,
    M_OUT_N,
    OUT_ROW,
    REGISTERS,
) = range(178)

#: Columns of `Chip.loads`: the commands in the load controller's tracker.
L_VALID, L_LEFT, L_ROB, L_VADDR, L_STRIDE, L_ADDR, L_COLS, L_REPEATS, L_BLOCK, L_SCALED, L_WIDE, L_ACC, L_ADD, L_PIXELS, L_ROWS = (
    range(15)
)
#: Columns of `Chip.states`: the three load states.
S_STRIDE, S_SCALED, S_SHRUNK, S_BLOCK, S_PIXELS = range(5)
#: Columns of `Chip.xacts`: read transactions.
T_SLOT, T_SHIFT, T_BYTES, T_SIZE, T_OFFSET, T_ADDR, T_USED = range(7)
#: Columns of `Chip.rows`: rows between the reader and the memories.
V_SLOT, V_ADDR, V_LAST, V_BYTES, V_ROW, V_FINAL, V_DONE, V_LEFT, V_TURN = range(9)
#: Columns of `Chip.stores`: rows between the store controller and the writer.
W_KIND, W_ADDR, W_LEN, W_BLOCK, W_STORE, W_VADDR, W_SLOT = range(7)
SPAD, ACC, NOTHING = range(3)
#: What a bank was read for.
EX_ROW, DMA_ROW = 1, 2
#: Columns of `Chip.commands`: commands for the execute controller.
C_FUNCT, C_RS1, C_RS2, C_ROB = range(4)
#: Columns of `Chip.ops`: what the array is doing.
O_TOTAL, O_ROB, O_ADDR, O_ROWS, O_OS = range(5)
#: Columns of `Chip.tags`.
G_ID, G_ROB, G_ADDR, G_ROWS = range(4)
#: Columns of `Chip.entries`, of the reservation station: two operands as [kind, start, end, wraps], and dependencies.
E_PRIM, E_A, E_A_START, E_A_END, E_A_WRAPS, E_A_WRITES, E_B, E_B_START, E_B_END, E_B_WRAPS, E_DEPS, E_DEPS_EX, E_DEPS_ST = (
    range(13)
)
#: The kind of an operand.
ABSENT, IN_SPAD, IN_ACC = range(3)
LD, EX, ST = range(3)
#: Size of rings: at least the longest queue.
RING = 512


class Chip(NamedTuple):
    """One machine in a certain cycle, with its program and the times that it records."""

    p: Array  # int64 [PARAMETERS]
    s: Array  # int64 [REGISTERS]
    commands_in: Array  # int64 [n, 3]: the program
    accept: Array  # int64 [n]
    unroller: Array  # int64 [m]: where a primitive command comes from
    prims: Array  # int64 [m, 3]
    times: Array  # int64 [m, 3]: taken, issued, done
    order: Array  # int64 [m]
    n: Array  # int64 [QUEUES]: elements
    head: Array
    cap: Array
    popped: Array  # the cycle in which an element left last
    pops: Array  # elements that left in that cycle
    ring: Array  # int64 [QUEUES, RING]
    entries: Array  # int64 [3, 64, 13]
    valid: Array  # int64 [3]: bits of entries in use
    waiting: Array  # int64 [3, RING]: entries that are not issued, in order
    first: Array  # int64 [3]: position of the first of them
    loads: Array
    states: Array
    xacts: Array
    rows: Array
    stores: Array
    store_slots: Array  # int64 [SLOTS, 3]: valid, rows left, entry
    commands: Array
    ops: Array
    tags: Array  # int64 [RING, 4], by position in TAGS
    bank: Array  # int64 [spad banks, 4]: read in flight, buffered, stages of the pipe to the array, to the writer
    acc_bank: Array  # int64 [acc banks, 5]: read in flight, buffered, rows of the last two writes (-1: none), new one
    out: Array  # int64 [RING, 3]: cycle, identity and last of rows in the array
    memory: Array  # int64 [M, 3]: cycle of the first beat, beats, transaction


def build(commands: Array, expansion: Expansion, config: Config, latency: int) -> Chip:
    """Return a machine after reset, with a program: its commands, uint64 [n, 3], and what they expand to."""
    prims, unroller = np.ascontiguousarray(expansion.prims), expansion.unroller.astype(np.int64)
    p = np.zeros(PARAMETERS, np.int64)
    rows = config.all_spad_rows
    log = lambda value: value.bit_length() - 1  # noqa: E731
    p[DIM], p[SPAD_BANKS], p[SPAD_SHIFT], p[SPAD_MASK] = config.dim, config.spad_banks, log(config.spad_rows), rows - 1
    p[ACC_SHIFT], p[ACC_MASK] = log(config.acc_rows // config.acc_banks), config.acc_rows - 1
    p[ROW_MASK] = (1 << config.row_bits) - 1
    p[GARBAGE] = 0b111 << 29 | 1 << config.row_bits | p[ROW_MASK]
    p[MAX_BYTES], p[BUS], p[READS], p[WRITES] = (
        config.dma_bytes,
        config.bus_bytes,
        config.reads_in_flight,
        config.writes_in_flight,
    )
    p[LATENCY], p[SLOTS], p[MESH] = latency, config.reads_in_flight // config.dim + 1, 2 * config.dim
    p[RS_LD], p[RS_EX], p[RS_ST] = config.rs_load, config.rs_execute, config.rs_store
    p[ONLY_WS] = config.dataflow == "ws"
    s = np.zeros(REGISTERS, np.int64)
    s[[PENDING, PENDING_1, R_PAGE, W_PAGE, EX_DONE, R_FREED, W_FREED]] = -1
    s[XBAR_LAST] = 0
    s[X_OS] = config.dataflow != "ws"
    zeros = lambda *shape: np.zeros(shape, np.int64)  # noqa: E731
    cap = np.full(QUEUES, 2, np.int64)
    cap[[LOADS, EXECUTES, STORES]] = config.queue_load, config.queue_execute, config.queue_store
    cap[[NORM, SCALE, SPAD_REGS, TAGS, TOTALS, READ_ISSUE, CONTROL, WRITE_ISSUE]] = 6, 6, 3, 6, 6, 5, 5, 5
    acc_bank = zeros(config.acc_banks, 5)
    acc_bank[:, 2:] = -1
    m = len(prims)
    return Chip(
        p,
        s,
        commands.view(np.int64),
        np.full(len(commands), -1, np.int64),
        unroller,
        prims.view(np.int64),
        np.full((m, 3), -1, np.int64),
        np.full(m, -1, np.int64),
        zeros(QUEUES),
        zeros(QUEUES),
        cap,
        np.full(QUEUES, -1, np.int64),
        zeros(QUEUES),
        zeros(QUEUES, RING),
        zeros(3, 64, 13),
        zeros(3),
        zeros(3, RING),
        zeros(3),
        zeros(int(p[SLOTS]), 15),
        zeros(3, 5),
        zeros(config.reads_in_flight, 7),
        zeros(RING, 9),
        zeros(RING, 7),
        zeros(int(p[SLOTS]), 3),
        zeros(RING, 4),
        zeros(RING, 5),
        zeros(RING, 4),
        zeros(config.spad_banks, 4),
        acc_bank,
        zeros(RING, 3),
        zeros(config.reads_in_flight + config.writes_in_flight, 3),
    )
