"""The machine after reset."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.timing.chip import CHIP
from tilewright.targets.gemmini.timing.layout import END, PER_QUEUE, QUEUES, TABLES
from tilewright.targets.gemmini.timing.queues import QUEUE, Q
from tilewright.targets.gemmini.timing.records import LENGTHS, reset


def build(config: Config, latency: int) -> Array:
    """Return a machine after reset, int64 [END]."""
    m = np.zeros(END, np.int64)
    reset(m)
    for name, value in _parameters(config, latency).items():
        m[getattr(CHIP, name)] = value
    rings = m[QUEUES:TABLES].reshape(-1, PER_QUEUE)
    rings[:, QUEUE.length] = LENGTHS
    rings[:, QUEUE.left] = -1
    for name in ("load", "execute", "store"):
        m[getattr(Q, f"{name}s") + QUEUE.length] = getattr(config, f"queue_{name}")
    m[CHIP.os] = config.dataflow != "ws"
    return m


def _parameters(config: Config, latency: int) -> dict[str, int]:
    """Return the fixed numbers of a machine by their names in `Chip`."""
    lg = int.bit_length
    return {
        "dim": config.dim,
        "lg_dim": lg(config.dim) - 1,
        "spad": config.all_spad_rows - 1,
        "lg_spad_bank": lg(config.spad_rows) - 1,
        "acc": config.acc_rows - 1,
        "lg_acc_bank": lg(config.acc_rows // config.acc_banks) - 1,
        "rows": (1 << config.row_bits) - 1,
        "garbage": 0b111 << 29 | 1 << config.row_bits | (1 << config.row_bits) - 1,
        "dma_bytes": config.dma_bytes,
        "lg_bus": lg(config.bus_bytes) - 1,
        "max_reads": config.reads_in_flight,
        "max_writes": config.writes_in_flight,
        "slots": config.reads_in_flight // config.dim + 1,
        "latency": latency,
        "only_ws": config.dataflow == "ws",
    }
