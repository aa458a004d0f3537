"""The causes of cycles on VTA, with the meaning and a remedy for each. The pipelines are in isa/fields.py."""

from __future__ import annotations

from tilewright.sim.causes import CAUSES as SHARED
from tilewright.sim.causes import DRAIN
from tilewright.sim.figures import Definition

#: The kinds of work of an instruction that moves no data in DRAM, in the order of the step table's column `work`.
WORKS = {
    "GEMM": Definition(
        "The GEMM core multiplies.",
        "This is the useful work: use a larger array, or tiles that fill the array better.",
    ),
    "ALU": Definition(
        "The tensor ALU works: bias, requantisation, pooling, additions.",
        "Let the ALU rescale (`alu=fused`), or give it a stage of its own (`stages=4`).",
    ),
    "control": Definition(
        "An instruction passes tokens, fills padding or ends the program, and moves no data.",
        "Use larger tiles, which need fewer such instructions.",
    ),
}
#: The waits of a unit for a token of another unit; "A->B token": B waits for A. Stages: load, compute, store, or load,
#: gemm, activate, store.
WAITS = {
    "load->compute token": Definition(
        "The unit compute waits until a load has brought its data.",
        "Load earlier (a smaller first tile), load less, or widen the DRAM bus.",
    ),
    "compute->load token": Definition(
        "The unit load waits until compute has used the buffer that the load will overwrite.",
        "No action if compute is busy; otherwise make the buffers larger or the tiles smaller.",
    ),
    "compute->store token": Definition(
        "The unit store waits for results of compute.",
        "No action if compute is busy; otherwise look for what compute waits for.",
    ),
    "store->compute token": Definition(
        "The unit compute waits until a store has read the results that compute will overwrite.",
        "Store fewer bytes, or divide the accumulator between two tiles.",
    ),
    "load->gemm token": Definition(
        "The unit gemm waits until a load has brought its data.",
        "Load earlier, load less, or widen the DRAM bus.",
    ),
    "gemm->load token": Definition(
        "The unit load waits until gemm has used the buffer that the load will overwrite.",
        "No action if gemm is busy; otherwise make the buffers larger or the tiles smaller.",
    ),
    "gemm->activate token": Definition(
        "The unit activate (the tensor ALU) waits for sums of gemm.",
        "No action if gemm is busy; otherwise look for what gemm waits for.",
    ),
    "activate->gemm token": Definition(
        "The unit gemm waits until activate has finished with the sums that gemm will overwrite.",
        "Give the ALU less work (`alu=fused`), or use more accumulator banks (`acc_banks`).",
    ),
    "activate->store token": Definition(
        "The unit store waits for results of activate.",
        "No action if gemm is busy; otherwise look for what activate waits for.",
    ),
    "store->activate token": Definition(
        "The unit activate waits until a store has read the results that activate will overwrite.",
        "Store fewer bytes, or widen the DRAM bus.",
    ),
}
CAUSES = {**WORKS, **SHARED, **WAITS, **DRAIN}
