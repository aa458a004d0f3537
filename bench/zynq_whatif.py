"""What repairs the VGG16 engine: every change alone, then one after the other, with time, bill and bottleneck.

    python bench/zynq_whatif.py [--json] [--plot FILE.svg] [--model FILE.onnx]

The network is VGG16 at 224x224, or the layers of a model that the engine takes. `table` is the design note's figure in
millions of cycles, and `off` the relative difference of M cycles from it. `bound` follows the note's rule: it takes the
longer of engine and PS in each layer, and leaves out the transfer of a layer's first and last block. Steps with a star
correct an assumption of the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import tilewright as tw
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.graph.rounding import rounding_mode
from tilewright.targets.zynq.compiler import codegen
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.layer import LAYOUT, Kind, Layer
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.service import Schedule, schedule

Options = dict[str, Any]

#: Two frames in 128 BRAM36: whole blocks of data, halves of the others; FC1 then has 1,568 blocks, 11 bits.
HALVES: Options = {"frames": 2, "weight_bits": 16, "result_bits": 16, "block_bits": 11}
D: Options = {"banked": 1, "ports": 2, "control": "pipelined"}
STEP2: Options = {**D, **HALVES}
STEP3: Options = {**STEP2, "oc_blocking": 1}
STEP4: Options = {**STEP3, "outputs": 2, "macs_per_dsp": 2}
STEP5: Options = {**STEP4, "outputs": 3}
STEP6: Options = {**STEP5, "axi_bytes": 16}
STEP8: Options = {**STEP6, "clock_mhz": 200}
STEP9: Options = {**STEP8, "fetch": "full", "handshake": 1000, "write_behind": 1}
#: What has gateware: the preset `fast`.
FAST: Options = {**STEP9, "window": 1, "resident": 1, "ports": 1, "fetch": "once"}

#: The parts of engine time; waits for the PS come by store.
UNIT, LOADER, CONTROL, WRITES, POOL = "compute unit", "loader", "control states", "result writes", "pool"


@dataclass(frozen=True)
class Step:
    """A machine, what is new about it, and the design note's cycles in millions (0: it has none)."""

    name: str
    change: str
    options: Options = field(default_factory=dict)
    table: float = 0.0


STEPS = (
    Step("R0", "repaired baseline", {}, 16747.0),
    Step("A", "delay and request pruned", {"control": "pruned"}, 16526.9),
    Step("B", "banked stores", {"banked": 1, "control": "direct"}, 1010.2),
    Step("B*", "B, with the request state", {"banked": 1}),
    Step("C", "B + pipelining (no control states)", {"banked": 1, "control": "pipelined"}, 790.1),
    Step("D", "C + second BRAM port", D, 680.0),
    Step("E", "two frames per store", HALVES, 16196.7),
    Step("F", "output-channel blocking", {"oc_blocking": 1}, 16247.2),
    Step("G", "2 MAC per DSP", {"outputs": 2, "macs_per_dsp": 2}, 8658.5),
    Step("G*", "G + loading the operands of both outputs", {"outputs": 2, "macs_per_dsp": 2, "fetch": "full"}),
    Step("1", "step D", D, 680.0),
    Step("2", "+ two frames per store", STEP2, 565.9),
    Step("3", "+ output-channel blocking", STEP3, 160.7),
    Step("4", "+ 2 MAC per DSP", STEP4, 106.1),
    Step("5", "+ 216 DSP", STEP5, 90.2),
    Step("6", "+ 128-bit AXI", STEP6, 65.1),
    Step("7", "+ FC batch 8", {**STEP6, "fc_batch": 8}, 57.5),
    Step("8", "step 6 at 200 MHz", STEP8, 65.1),
    Step("8*", "step 8 + all operands loaded, handshake 5 us", {**STEP8, "fetch": "full", "handshake": 1000}),
    Step("9", "step 8* + results written behind", STEP9),
    Step("9*", "step 9 with the window buffer and resident blocks", FAST),
    Step("10", "step 9 + FC batch 8", {**STEP9, "fc_batch": 8}),
)


def vgg16(config: Config) -> list[Layer]:
    """The layers of VGG16 at 224x224 on one machine, without values."""
    layers: list[Layer] = []
    side, channels = 224, 3

    def add(kind: Kind, **fields: int) -> None:
        layer = Layer(config, {**dict.fromkeys(LAYOUT.by_name, 0), "kind": int(kind), **fields})
        if reason := walk.refusal(layer):
            raise UnsupportedError(f"layer {len(layers)}", reason)
        layers.append(layer)

    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            kind = Kind.CONV_OTHER if channels >= 16 else Kind.CONV_1_1
            add(kind, ic=channels, oc=width, rows=side, cols=side)
            channels = width
        add(Kind.POOL, ic=channels, rows=side, cols=side)
        side //= 2
    for r, columns in ((25088, 4096), (4096, 4096), (4096, 1000)):
        add(Kind.FC, r=r, l=columns)
    return layers


def account(layers: Sequence[Layer]) -> dict[str, float]:
    """Cycles by part: an iteration is one cycle of the unit, more of the loader, and those of control states."""
    total: dict[str, float] = {}
    for layer in layers:
        found = schedule(layer)
        for part, cycles in {**_engine(layer, found), **_stalls(found)}.items():
            total[part] = total.get(part, 0.0) + cycles / layer.samples
    return total


def bottleneck(parts: dict[str, float]) -> str:
    """The largest part and its share."""
    name = max(parts, key=lambda part: parts[part])
    return f"{name} ({parts[name] / sum(parts.values()):.0%})"


def least(layers: Sequence[Layer]) -> float:
    """Cycles if engine and PS overlapped perfectly within each layer: the longer of the two. Needs two frames."""
    total = 0.0
    for layer in layers:
        found = schedule(layer)
        busy = int((found.service.end - found.service.start).sum())
        total += max(found.engine, busy) / layer.samples
    return total


def iterations(layer: Layer) -> int:
    """Times that the lanes are filled, all samples of a batch counted."""
    if layer.kind == Kind.POOL:
        return 0
    if layer.kind == Kind.FC:
        return walk.FcWalk(layer).groups * layer.depth * layer.samples
    of = walk.ConvWalk(layer)
    return sum(-(-positions // of.k) for positions in of.positions) * layer["oc"] * layer.depth


def _engine(layer: Layer, found: Schedule) -> dict[str, int]:
    if layer.kind == Kind.POOL:
        return {POOL: found.engine}
    fc, count = layer.kind == Kind.FC, iterations(layer)
    fill, whole = layer.config.fill(fc), layer.config.iteration(fc)
    parts = {UNIT: count, LOADER: (fill - 1) * count, CONTROL: (whole - fill) * count}
    return {**parts, WRITES: found.engine - whole * count}


def _stalls(found: Schedule) -> dict[str, int]:
    return {f"PS: {name}": cycles for name, cycles in found.stalls().items()}


def layers_of(model: Path | None, config: Config) -> list[Layer]:
    """What of a model the engine takes."""
    if model is None:
        return vgg16(config)
    graph = tw.load(model)
    found = (codegen.plan(site, config, rounding_mode(graph.rounding)) for site in graph.sites())
    return [layer for layer in found if isinstance(layer, Layer)]


def measure(step: Step, model: Path | None) -> dict[str, Any]:
    """The figures of one step, for one image."""
    config = Config(**step.options)
    layers = layers_of(model, config)
    parts = account(layers)
    cycles = round(sum(parts.values()))
    seconds = cycles / (config.clock_mhz * 1e6)
    gops = 2e-9 * sum(layer.outputs * layer.kernel for layer in layers if layer.channels) / seconds
    return {
        "step": step.name,
        "options": step.options,
        "cycles": cycles,
        "seconds": seconds,
        "gops": gops,
        "dsp": config.dsp,
        "bram36": config.bram36,
        "gops_per_dsp": gops / config.dsp,
        "bottleneck": bottleneck(parts),
    }


def show(rows: list[dict[str, Any]], model: Path | None) -> None:
    head = f"{'step':5}{'change':50}{'M cycles':>9}{'table':>9}{'off':>7}{'bound':>9}{'s':>8}{'GOP/s':>7}"
    click.echo(f"{head}{'DSP':>5}{'BRAM':>5}{'/DSP':>7}  bottleneck")
    for step, row in zip(STEPS, rows, strict=True):
        table, off, bound = "", "", ""
        if step.table and model is None:
            table, off = f"{step.table:.1f}", f"{row['cycles'] / step.table / 1e6 - 1:+.2%}"
        config = Config(**step.options)
        if config.frames > 1:
            bound = f"{least(layers_of(model, config)) / 1e6:.1f}"
        click.echo(
            f"{step.name:5}{step.change:50}{row['cycles'] / 1e6:9.1f}{table:>9}{off:>7}{bound:>9}{row['seconds']:8.3f}"
            f"{row['gops']:7.2f}{row['dsp']:5}{row['bram36']:5}{row['gops_per_dsp']:7.4f}  {row['bottleneck']}"
        )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """GOP/s of each step as bars on a logarithmic scale, an SVG."""
    from html import escape
    from math import log10

    left, width, height = 60, 420, 22
    low, high = 0.1, 200.0

    def place(gops: float) -> float:
        return left + width * (log10(max(gops, low)) - log10(low)) / (log10(high) - log10(low))

    size = f'width="{left + width + 420}" height="{height * len(rows) + 30}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    lines.append('<rect width="100%" height="100%" fill="white"/>')
    for gops in (0.1, 1, 10, 100):
        x = place(gops)
        lines.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="0" y2="{height * len(rows)}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.0f}" y="{height * len(rows) + 18}" text-anchor="middle">{gops:g} GOP/s</text>')
    for index, (step, row) in enumerate(zip(STEPS, rows, strict=True)):
        y, end = index * height, place(row["gops"])
        lines.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{step.name}</text>')
        lines.append(f'<rect x="{left}" y="{y + 3}" width="{end - left:.1f}" height="{height - 6}" fill="#4878a8"/>')
        said = escape(f"{row['gops']:.2f}: {step.change}; {row['bottleneck']}")
        lines.append(f'<text x="{end + 6:.0f}" y="{y + 15}">{said}</text>')
    path.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


@click.command(help="The what-if table of the VGG16 engine. This file's first lines say what is what.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of steps.")
@click.option("--plot", "svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.svg", help="Draw GOP/s.")
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="Another network than VGG16.")
def main(as_json: bool, svg: Path | None, model: Path | None) -> None:
    try:
        rows = [measure(step, model) for step in STEPS]
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None
    if svg:
        plot(rows, svg)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        show(rows, model)


if __name__ == "__main__":
    main()
