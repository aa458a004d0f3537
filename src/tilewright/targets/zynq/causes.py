"""The causes of cycles on the VGG16 engine: the meaning of each cause, and a remedy.

In each cycle, the engine works or waits for the processor (PS), which moves the blocks (pages) of the stores.
"""

from __future__ import annotations

from tilewright.sim.figures import Definition

BLOCKS = {
    "data": Definition(
        "The engine waits until the PS has moved a block of inputs into block RAM.",
        "Use two frames per store (`frames=2`), `resident=1`, or a wider port of the PS (`axi_bytes`).",
    ),
    "weight": Definition(
        "The engine waits until the PS has moved a block of weights into block RAM.",
        "Use each block for all positions (`oc_blocking=1`), for several samples (`fc_batch`), or widen the port.",
    ),
    "bias": Definition(
        "The engine waits until the PS has moved a block of biases into block RAM.",
        "Use larger bias blocks (`bias_bits`), so that one holds all biases of a layer.",
    ),
    "result": Definition(
        "The engine waits until the PS has moved a block of results out of block RAM.",
        "Use two frames per store (`frames=2`), or a wider port of the PS (`axi_bytes`).",
    ),
}
RELAYOUT = Definition(
    "The engine waits while the PS rearranges results in DRAM for the next layer.",
    "Write results in the order in which the next layer reads them, and set `relayout=0`, the default.",
)
CAUSES = {
    "engine": Definition(
        "The engine works: it fetches words, multiplies, accumulates and writes results.",
        "Read stores in all block RAMs at once (`banked=1`), and save control states (`control=pipelined`).",
    ),
    **{f"{store} blocks": cause for store, cause in BLOCKS.items()},
    "relayout by the PS": RELAYOUT,
    **{f"{store} block token": cause for store, cause in BLOCKS.items()},
    "relayout token": RELAYOUT,
}
