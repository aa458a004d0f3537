"""The C library for host programs of one machine: sources, and a header generated from the configuration."""

from __future__ import annotations

from pathlib import Path

from tilewright.native.hosts import HostLibrary
from tilewright.targets.gemmini.config import Config

HERE = Path(__file__).parent
#: The requests of a host. `source` sends the name of a source file, and `record` sends commands. At a fence, the host
#: asks which ranges of memory the machine needs (`needed`, `needed_ranges`) and sends their `content`. After `run`, the
#: host asks which ranges were stored (`stored_ranges`), and takes their bytes (`take`).
REQUESTS = ("source", "record", "needed", "needed_ranges", "content", "run", "stored_ranges", "take", "cycles")
#: The number of rows whose statistics are kept at once, as in the functional model (libgemmini at 5b1254a).
STATISTICS = 4


def library(config: Config) -> HostLibrary:
    """Return the library for a machine. The header gemmini_params.h has the machine's sizes."""
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
    """Return the text of gemmini_params.h: the sizes of a machine under upstream's names."""
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
