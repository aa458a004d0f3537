"""The library for hosts in C of one machine: its sources, and the header made from the configuration."""

from __future__ import annotations

from pathlib import Path

from tilewright.native.hosts import HostLibrary
from tilewright.targets.gemmini.config import Config

HERE = Path(__file__).parent
#: The requests of a host: the names of a source, then commands. At a fence, the number of ranges that the machine
#: needs, the ranges, and the content of each; then the number of ranges that it stored, the ranges, and the content of
#: each.
REQUESTS = ("source", "record", "needed", "needed_ranges", "content", "run", "stored_ranges", "take", "cycles")
#: Rows whose statistics a program collects at once, as in the functional model (libgemmini at 5b1254a).
STATISTICS = 4


def library(config: Config) -> HostLibrary:
    """Return the library for a machine. Hosts include its sizes as `include/gemmini_params.h`."""
    return HostLibrary(
        "tilewright_gemmini",
        server="tilewright.targets.gemmini.native.serve",
        requests=REQUESTS,
        sources=(HERE / "c" / "recorder.c",),
        include=HERE / "include",
        config=config.to_dict(),
        generated={"include/gemmini_params.h": params(config)},
        links=("-lm",),
    )


def params(config: Config) -> str:
    """Return gemmini_params.h: the sizes of a machine by the names of upstream."""
    sizes = {
        "XCUSTOM_ACC": 3,
        "DIM": config.dim,
        "ADDR_LEN": 32,
        "BANK_NUM": config.spad_banks,
        "BANK_ROWS": config.spad_rows,
        "ACC_ROWS": config.acc_rows,
        "MAX_BYTES": config.dma_bytes,
        "MAX_BLOCK_LEN": config.spad_blocks,
        "MAX_BLOCK_LEN_ACC": config.acc_blocks,
        **dict.fromkeys(("HAS_FIRST_LAYER_OPTIMIZATIONS", "ACC_READ_SMALL_WIDTH", "ACC_READ_FULL_WIDTH"), ""),
        **({"HAS_NORMALIZATIONS": "", "NORM_STAT_IDS": STATISTICS} if config.normaliser else {}),
    }
    lines = (f"#define {name} {value}".rstrip() for name, value in sizes.items())
    notice = "/* Made from the configuration of the model: do not edit. */"
    guard = "GEMMINI_PARAMS_H"
    return "\n".join(
        [notice, f"#ifndef {guard}", f"#define {guard}", *lines, '#include "tilewright/types.h"', "#endif\n"]
    )
