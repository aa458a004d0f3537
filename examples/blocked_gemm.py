"""A blocked GEMM by hand on the runtime: 256 x 256 x 256 int8, 64 x 64 x 64 on chip at a time.

out = x @ w.T + bias, as in upstream's hardware test (vta_test.cc, blocked_gemm_test): each block of outputs starts
as its bias, four products are added to it, its low bytes are stored. With two virtual threads the halves of each
memory take turns, so that one block is loaded while the other is multiplied. Results are compared with numpy.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.runtime import Memory, RunResult, Runtime, UopRecorder
from tilewright.targets.vta.timing import DEFAULT

SIZE, BLOCK = 256, 64
TILE = 16  # columns of an input tile, rows and columns of a weight tile; a row of inputs a tile (BATCH 1)
PARTS = SIZE // BLOCK  # blocks along each side
ACROSS = SIZE // TILE  # tiles along a row of a matrix
WIDE = BLOCK // TILE  # tiles along a row of a block
INPUTS, WEIGHTS = BLOCK * WIDE, WIDE * WIDE  # tiles of a block


def product(kernel: UopRecorder, thread: int) -> None:
    """One block of inputs by one of weights: 16 micro-ops for each of 64 rows."""
    inp, wgt = thread * INPUTS, thread * WEIGHTS
    with kernel.uop_loop(BLOCK, dst=WIDE, src=WIDE):
        for k in range(WIDE):
            for n in range(WIDE):
                kernel.uop_push(dst=inp + n, src=inp + k, wgt=wgt + n * WIDE + k)


def blocked_gemm(rt: Runtime, x: Array, w: Array, bias: Array, threads: int) -> tuple[Array, RunResult]:
    """out int8 (256, 256), the low bytes of the sums."""
    inputs, weights = rt.to_device(x, Memory.INP, "x"), rt.to_device(w, Memory.WGT, "w")
    biases, out = rt.to_device(bias, Memory.ACC, "bias"), rt.empty(x.shape, Memory.OUT, "out")
    for _ in range(threads):  # both halves of each memory are free at first
        rt.dep_push("compute", "load")
        rt.dep_push("store", "compute")
    blocks = [(m, n) for m in range(PARTS) for n in range(PARTS)]
    for start in range(0, len(blocks), threads):
        group = list(enumerate(blocks[start : start + threads]))
        for thread, (m, n) in group:
            at, acc = m * BLOCK * ACROSS + n * WIDE, thread * INPUTS
            rt.dep_pop("store", "compute")
            rt.load_buffer_2d(biases, at, WIDE, BLOCK, ACROSS, acc, Memory.ACC)
        for k in range(PARTS):
            for thread, (m, n) in group:
                x_at, w_at = m * BLOCK * ACROSS + k * WIDE, n * WIDE * ACROSS + k * WIDE
                rt.dep_pop("compute", "load")
                rt.load_buffer_2d(inputs, x_at, WIDE, BLOCK, ACROSS, thread * INPUTS, Memory.INP)
                rt.load_buffer_2d(weights, w_at, WIDE, WIDE, ACROSS, thread * WEIGHTS, Memory.WGT)
                rt.dep_push("load", "compute")
                rt.dep_pop("load", "compute")
                rt.push_gemm(product, thread)
                rt.dep_push("compute", "load")
                if k == PARTS - 1:
                    rt.dep_push("compute", "store")
        for thread, (m, n) in group:
            at, acc = m * BLOCK * ACROSS + n * WIDE, thread * INPUTS
            rt.dep_pop("compute", "store")
            rt.store_buffer_2d(acc, Memory.OUT, out, at, WIDE, BLOCK, ACROSS)
            rt.dep_push("store", "compute")
    for _ in range(threads):
        rt.dep_pop("compute", "load")
        rt.dep_pop("store", "compute")
    result = rt.synchronize()
    return rt.from_device(out, Memory.OUT, x.shape), result


def main() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, (SIZE, SIZE)) for _ in range(2))
    bias = rng.integers(-(1 << 20), 1 << 20, (SIZE, SIZE))
    golden = (x @ w.T + bias).astype(np.int8)
    cycles = []
    for threads in (1, 2):
        with Runtime("pynq") as rt:
            out, result = blocked_gemm(rt, x, w, bias, threads)
            if threads == 1:
                print(rt.explain())
        errors = int((out != golden).sum())
        cycles.append(result.cycles)
        busy = SIZE**3 / 256 / result.cycles
        print(
            f"{threads} virtual thread(s): {errors} errors in {out.size} outputs, {len(result.findings)} hazards, "
            f"{result.cycles} cycles (timing model {DEFAULT}), GEMM core busy {busy:.0%}"
        )
    print(f"two threads need {cycles[1] / cycles[0]:.2f} of the cycles of one")


if __name__ == "__main__":
    main()
