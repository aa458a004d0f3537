"""The document's analysis of a network, its tables 1, 2 and 4, and what the engine makes of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Conv2D, FullyConnected
from tilewright.program.program import Launch, Program
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import DESCRIPTORS, Layer
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.service import PAGED, schedule


def text(program: Program, config: Config, timing: str) -> str:
    """All tables; those of the document need the network, which a bare program lacks."""
    layers = [(launch.name, LayerImage.of(launch, config).layer) for launch in program.launches]
    parts = [
        *(_analysis(program.graph) if program.graph else ()),
        *_engine(layers, config, timing),
        *_code(program.launches, config),
    ]
    return "\n".join(parts)


def _analysis(graph: Graph) -> Iterator[str]:
    sites = list(graph.sites())
    convolutions = [_convolution(site) for site in sites if isinstance(site.node.op, Conv2D)]
    yield _table("table 1: convolutions", ("layer", "kernel", "channels (OC)", "positions (S)"), convolutions)
    products = [
        (site.node.name, str(site.input(1).shape[1]), str(site.input(1).shape[0]))
        for site in sites
        if isinstance(site.node.op, FullyConnected)
    ]
    yield _table("table 2: fully connected", ("layer", "products of a sum (R)", "sums (L)"), products)
    inputs = [("input", _product(graph.tensors[name].shape[1:]), "0") for name in graph.inputs]
    volumes = [_volumes(site) for site in sites if isinstance(site.node.op, Conv2D | FullyConnected)]
    yield _table("table 4: words", ("layer", "results", "weights"), [*inputs, *volumes])


def _convolution(site: Site) -> tuple[str, ...]:
    channels, *kernel = site.input(1).shape
    return site.node.name, "*".join(map(str, kernel)), str(channels), "*".join(map(str, site.output.shape[1:3]))


def _volumes(site: Site) -> tuple[str, ...]:
    channels, *kernel = site.input(1).shape
    weights = f"({'*'.join(map(str, kernel))})*{channels} = {channels * prod(kernel)}"
    return site.node.name, _product(site.output.shape[1:]), weights


def _product(shape: Sequence[int]) -> str:
    return f"{'*'.join(map(str, shape))} = {prod(shape)}" if len(shape) > 1 else str(prod(shape))


def _engine(layers: list[tuple[str, Layer]], config: Config, timing: str) -> Iterator[str]:
    """Iterations (table 3, counted), blocks and cycles under a timing model."""
    rows = []
    for name, layer in layers:
        found = schedule(layer, paged=timing == PAGED)
        loads = ", ".join(f"{store} {count}" for store, count in found.loads().items())
        straddling = walk.straddling(layer) if layer.conv else "-"
        blocks = (walk.data_blocks(layer), walk.weight_blocks(layer) if layer.channels else 0, straddling)
        cells = (layer.iterations, f"{layer.utilization:.4f}", *blocks, found.engine // layer.samples, loads)
        rows.append((name, *map(str, cells), str(-(-found.cycles // layer.samples))))
    columns = "layer, iterations, utilization, data blocks, weight blocks, straddle if packed, engine cycles"
    header = (*columns.split(", "), "block services", "cycles")
    yield _table(f"engine: layout {config.layout}, timing model {timing}", header, rows)
    bill = [(part, str(count)) for part, count in config.bill.items()]
    whole = f"{config.dsp} of {config.dsp_budget} DSP48, {config.bram36} of {config.bram_budget} BRAM36"
    yield _table(f"bill: {whole}", ("part", "takes"), bill)


def _code(launches: Sequence[Launch], config: Config) -> Iterator[str]:
    yield "descriptors"
    for launch in launches:
        yield f"  {launch.name}: {DESCRIPTORS.notation.show(LayerImage.of(launch, config).layer.fields)}"
    yield ""


def _table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their widest cell; nothing but a word where there are no rows."""
    if not rows:
        return f"{title}\n  none\n"
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join([title, *(f"  {line}" for line in lines), ""])
