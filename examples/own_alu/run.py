"""A program by hand for a VTA with two ALU operations of its own (machine.json): motion between two images.

    python examples/own_alu/run.py [FILE.twp [MACHINE.json]]        # save the program; run it on another machine

For each pixel: absdiff is the difference of the images, divided by 4; then a threshold is subtracted, and leaky
divides negative results by 8. The result is compared with NumPy.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tilewright.program import file
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.runtime import AluOp, Memory, Runtime, UopRecorder

MACHINE = Path(__file__).with_name("machine.json")
ROWS, COLUMNS, THRESHOLD = 16, 32, 20


def alu(kernel: UopRecorder, opcode: AluOp | str, imm: int, tiles: int) -> None:
    """One instruction on acc tiles 0 to tiles - 1; the second image lies behind them."""
    with kernel.uop_loop(tiles, dst=1, src=1):
        kernel.uop_push(dst=0, src=tiles if opcode == "absdiff" else 0, opcode=opcode, imm=imm)


def main() -> None:
    config = Config.read(sys.argv[2] if len(sys.argv) > 2 else str(MACHINE), {})
    before, after = np.random.default_rng(0).integers(0, 256, (2, ROWS, COLUMNS)).astype(np.int32)
    tiles = before.size // config.block
    with Runtime(config, timing="tilewright") as rt:
        images = [rt.to_device(image, Memory.ACC, name) for name, image in (("before", before), ("after", after))]
        out = rt.empty(before.shape, Memory.OUT, "out")
        for place, image in enumerate(images):
            rt.load_buffer_2d(image, 0, tiles, 1, tiles, place * tiles, Memory.ACC)
        rt.push_alu(alu, "absdiff", 2, tiles)
        rt.push_alu(alu, AluOp.ADD, -THRESHOLD, tiles)
        rt.push_alu(alu, "leaky", 3, tiles)
        rt.dep_push("compute", "store")
        rt.dep_pop("compute", "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 0, tiles, 1, tiles)
        program = rt.program()
        done = rt.synchronize()
        result = rt.from_device(out, Memory.OUT, before.shape)
    moved = (np.abs(before - after) >> 2) - THRESHOLD
    expected = np.where(moved >= 0, moved, moved >> 3)
    errors = np.count_nonzero(result != expected)
    print(f"{errors} errors in {result.size} values, {len(done.findings)} hazards, {done.cycles} cycles")
    if len(sys.argv) > 1:
        file.save(program, sys.argv[1])


if __name__ == "__main__":
    main()
