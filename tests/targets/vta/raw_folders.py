"""A folder of raw binaries, as other compilers write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.targets.vta import TARGET
from tilewright.targets.vta.isa.fields import Uops
from tilewright.targets.vta.isa.stream import encode_uops

PYNQ = TARGET.config("pynq", {})
CODE = """
load uop sram_base=0 dram_base=0x1400 y_size=1 x_size=1 x_stride=1
load acc sram_base=0 dram_base=0xc0 y_size=1 x_size=4 x_stride=4 push:load
load inp sram_base=0 dram_base=0x100 y_size=1 x_size=4 x_stride=4 pop:compute
load wgt sram_base=0 dram_base=0x20 y_size=1 x_size=1 x_stride=1 push:compute
gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 src_factor_in=1 pop:load push:store
store out sram_base=0 dram_base=0x400 y_size=1 x_size=4 x_stride=4 pop:compute push:compute
load uop sram_base=0 dram_base=0 y_size=0 x_size=0 x_stride=0 pop:store
finish
"""
ADDRESSES = (
    "INP,0x1000,0x100\nWGT,0x2000,0x20\nACC,0x3000,0xc0\nOUT,0x4000,0x400\nUOP,0x5000,0x1400\nINSN,0x6000,0x600\n"
)


def product(folder: Path) -> Path:
    """Write a product of 4 x 16 by 16 x 16 with start values; the expected output is computed by NumPy."""
    rng = np.random.default_rng(5)
    codes, weights = rng.integers(-9, 9, (4, 16), np.int8), rng.integers(-9, 9, (16, 16), np.int8)
    start = rng.integers(-99, 99, (4, 16), np.int32)
    insns = TARGET.assemble(CODE, PYNQ).launches[0].arrays["insns"]
    uops = encode_uops(Uops(*(np.zeros(1, np.int64) for _ in Uops._fields)), PYNQ)
    expected = (start + codes.astype(np.int32) @ weights.T.astype(np.int32)).astype(np.int8)
    files = {"instructions": insns, "uop": uops, "input": codes, "weight": weights, "accumulator": start}
    for name, data in {**files, "expected_out": expected, "add_accumulator": np.zeros(0, np.int8)}.items():
        (folder / f"{name}.bin").write_bytes(data.tobytes())
    (folder / "memory_addresses.csv").write_text(ADDRESSES)
    return folder
