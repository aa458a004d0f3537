"""The causes of cycles on the BM1684X, with an explanation and a remedy for each cause."""

from __future__ import annotations

from tilewright.sim.figures import Definition

ENGINES = {
    "tiu": Definition(
        "The compute engine (BDC) works.",
        "This is the useful work: use a type with more MACs per cycle (int8), or shapes that fill the 64 lanes.",
    ),
    "dma": Definition(
        "A transfer of the DMA engine (GDMA) is on the critical path: compute waits for data, or it stores results.",
        "Keep tensors in local memory, load weights once for several samples (`batch=4`), make longer runs of bytes.",
    ),
    "hau": Definition(
        "The engine for sorting and non-maximum suppression works.",
        "Give it fewer elements, for example only the scores above a threshold.",
    ),
}
#: For each pair of engines, the wait for a command of the other engine. "A->B token" means that B waits for A.
WAITS = {
    "dma->tiu token": Definition(
        "The compute engine waits until a transfer has brought its operands.",
        "Issue the transfer earlier, into another bank, while the engine computes.",
    ),
    "tiu->dma token": Definition(
        "The DMA engine waits until a compute command has written or released its tensor.",
        "No action if compute is busy; otherwise use a second buffer.",
    ),
    "hau->tiu token": Definition(
        "The compute engine waits for a result of the sorting engine.",
        "Give the compute engine other work meanwhile.",
    ),
    "tiu->hau token": Definition(
        "The sorting engine waits for a result of the compute engine.",
        "No action if compute is busy; otherwise compute the scores earlier.",
    ),
    "hau->dma token": Definition(
        "The DMA engine waits for a result of the sorting engine.",
        "Give the DMA engine other work meanwhile.",
    ),
    "dma->hau token": Definition(
        "The sorting engine waits until a transfer has brought its input.",
        "Issue the transfer earlier.",
    ),
}
CAUSES = {**ENGINES, **WAITS}
