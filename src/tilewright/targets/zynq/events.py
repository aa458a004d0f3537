"""Count the events of a layer: products, results, words of the stores, pages.

The engine computes `outputs` sums at a time, which share a weight (convolution) or a data word (FC layer). The samples
of a batch share the weights of an FC layer. The engine reads a shared word once, and does not read padding. With
`window`, the engine reads the data store to fill the window buffer, even for padding. The CPU moves whole blocks.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.events import Access, Bursts, Events, Part, Work
from tilewright.sim.steps import Trace
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.isa.layer import LAYOUT, Kind, Layer
from tilewright.targets.zynq.timing.walk import ConvWalk, FcWalk, window_pixels

#: The width of sums and biases in bits.
WIDE = 32


def events(layer: Layer, trace: Trace | None) -> Events:
    """Return the events of a layer for one sample, without pages if there is no trace."""
    missing = {
        "leakage, clock and control": "the layer does not determine them",
        "requantisation": "the document does not say how the engine does it",
        "the CPU's work for pages": "the document does not describe its program",
    }
    if trace is None:
        missing["DRAM bytes"] = "the launch was not timed"
    if layer.config.window and layer.conv:
        missing["window buffer"] = "it is made of logic, which the tables of energies do not have"
    read = int(trace.bytes_read.sum()) + trace.fetch_bytes if trace else 0
    written = int(trace.bytes_written.sum()) if trace else 0
    pool = layer.kind == Kind.POOL
    sums = () if pool else (Work("8x8+32", layer.macs, (Part("multiply", 8), Part("add", WIDE))),)
    compared = (Work("max 8", layer.inputs, (Part("compare", 8),)),) if pool else ()
    return Events(
        sums,
        compared,
        _stores(layer, read, written),
        read,
        written,
        (Bursts(_pages(layer, trace)),) if trace else (),
        1,
        trace.cycles if trace else 0,
        missing,
    )


def _stores(layer: Layer, read: int, written: int) -> tuple[Access, ...]:
    """Return the engine's accesses to each store, and the CPU's accesses to all stores together."""
    config = layer.config
    if layer.kind == Kind.POOL:
        reads = {"data": layer.inputs}
    elif layer.kind == Kind.FC:
        groups = FcWalk(layer).groups
        reads = {"data": groups * layer["r"], "weight": -(-layer.macs // layer.samples), "bias": layer.outputs}
    else:
        of = ConvWalk(layer)
        groups = sum(-(-positions // config.outputs) for positions in of.positions)
        loaded = groups * -(-layer["oc"] // of.together) * window_pixels(config) * layer.pixel
        data = loaded if config.window else layer.macs
        reads = {"data": data, "weight": layer["oc"] * groups * layer.stored_kernel, "bias": layer.outputs}
    accesses = [
        Access(f"{store} store", config.block_bytes(store) * config.frames, WIDE if store == "bias" else 8, count, 0)
        for store, count in reads.items()
    ]
    result = config.block_bytes("result") * config.frames
    accesses.append(Access("result store", result, 8, 0, layer.outputs))
    paged = config.block_bytes("data") * config.frames
    return (*accesses, Access("pages of the stores", paged, WIDE, -(-written // 4), -(-(read - LAYOUT.nbytes) // 4)))


def _pages(layer: Layer, trace: Trace) -> Array:
    """Return the page transfers, int64 [n, 2]: address and bytes. Each store has DRAM rows of its own."""
    sizes = [layer.config.block_bytes(store) for store in STORES]
    texts = map(trace.table.describe, range(len(trace.table)))  # such as "load weight block 3"
    names = [next((word for word in text.split() if word in STORES), "") for text in texts]
    moved = trace.bytes_read + trace.bytes_written
    places = dict.fromkeys(STORES, 0)
    bursts = list[tuple[int, int]]()
    for name, size in zip(names, moved.tolist(), strict=True):
        if size and name in places:
            base = (STORES.index(name) << 40) + places[name]
            bursts.append((base, size))
            places[name] += max(size, sizes[STORES.index(name)])
    return np.array(bursts, np.int64).reshape(-1, 2)
