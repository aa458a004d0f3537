"""Replays compiled networks: queues decode to the stored fields, run to the stored output, take the stored cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.sim.findings import Finding
from tilewright.sim.hazards import hazards
from tilewright.targets.base import ConformCase
from tilewright.targets.bm1684x import static
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.conformance.vectors import arrays, described
from tilewright.targets.bm1684x.elaborate import Elaborated, elaborate
from tilewright.targets.bm1684x.isa.stream import decode, encode
from tilewright.targets.bm1684x.memory import Memories
from tilewright.targets.bm1684x.operations import DMA
from tilewright.targets.bm1684x.timing import trace

CONFIG = Config()
#: DDR behind the last address that a package names: intermediate results.
SPARE = 1 << 22
#: How far transfers, and totals, may be from the vendor's estimate; the compute engine's commands are exact.
TOLERANCE = 0.1
QUEUES = ("tiu", "dma")


def replay(path: Path) -> Iterator[ConformCase]:
    """One precision of one network: fields, output (where its coefficients are stored), cycles."""
    vector, about = arrays(path), described(path.with_name(path.name.replace(".cmdbuf.npz", ".json")))
    name = f"{about['net']} {about['quant']}"
    queues = {engine: vector[f"{engine}_0_0"] for engine in QUEUES}
    yield _case(f"{name} fields", lambda: fields(queues, about["commands"]))
    if "coeff" in vector:
        yield _case(f"{name} output", lambda: output(path, queues, vector["coeff"], about["io"]))
    yield _case(f"{name} cycles", lambda: timing(elaborate(queues, CONFIG), about))


def _case(name: str, compare: Any) -> ConformCase:
    try:
        reason: str = compare()
    except TilewrightError as error:
        reason = str(error)
    return ConformCase(name, not reason, reason)


def fields(queues: Mapping[str, Array], stored: list[Mapping[str, Any]]) -> str:
    """What decodes differently; that encoding gives the bytes again."""
    for engine, raw in queues.items():
        found = decode(engine, raw)
        expected = [command for command in stored if command["engine"] == engine]
        if len(found) != len(expected):
            return f"{engine}: {len(found)} commands, not {len(expected)}"
        for command, wanted in zip(found, expected, strict=True):
            if dict(command.fields) != wanted["fields"]:
                return f"{command} has other fields"
        again = encode(found)
        if (again != raw[: len(again)]).any() or raw[len(again) :].any():
            return f"{engine}: encoded again, it has other bytes"
    return ""


def memory(path: Path, coefficients: Array, io: Mapping[str, Any]) -> Memories:
    """The device as a package wants it: tables, coefficients and inputs in their places."""
    memories = Memories(CONFIG)
    static.load(memories)
    inputs = arrays(path.with_name("input.npz"))
    pieces = {tensor["address"]: inputs[tensor["name"]] for tensor in io["inputs"]}
    if coefficients.size:
        pieces[io["coeff_address"]] = coefficients
    ends = [address + values.nbytes for address, values in pieces.items()]
    ends += [tensor["address"] + 4 * int(np.prod(shape)) for tensor in io["outputs"] for shape in tensor["shape"]]
    ddr = memories.add_ddr(DDR_BASE, np.zeros(max(ends) - DDR_BASE + SPARE, np.uint8))
    for address, values in pieces.items():
        start = address - DDR_BASE
        ddr.data[start : start + values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return memories


def output(path: Path, queues: Mapping[str, Array], coefficients: Array, io: Mapping[str, Any]) -> str:
    """What differs of the outputs, or which commands race."""
    memories = memory(path, coefficients, io)
    program = elaborate(queues, CONFIG, memories.regions)
    found: list[Finding] = [*program.order.findings, *hazards(program.table, program.order)]
    if found:
        return f"findings in a good program: {found[0]}"
    program.run(memories)
    stored = arrays(path.with_name(path.name.replace(".cmdbuf.", ".output.")))
    ddr = memories.region_of(DDR_BASE, DDR_BASE + 1).data
    for tensor in io["outputs"]:
        expected = stored[tensor["name"]]
        start = tensor["address"] - DDR_BASE
        values = ddr[start : start + expected.nbytes].view(expected.dtype).reshape(expected.shape)
        wrong = values.view(f"u{expected.itemsize}") != expected.view(f"u{expected.itemsize}")
        if wrong.any():
            return f"{tensor['name']} differs in {int(wrong.sum())} of {wrong.size} elements"
    return ""


def timing(program: Elaborated, about: Mapping[str, Any]) -> str:
    """What takes other cycles than estimated: the compute engine's commands exactly, transfers and totals roughly."""
    found = trace(program, CONFIG)
    taken = found.end - found.start
    for dma in (False, True):
        rows = [row for row, command in enumerate(program.encoded) if (command.engine == DMA) == dma]
        lines = [line for line in about["timeline"] if line["type"].startswith("GDMA") == dma]
        for row, line in zip(rows, lines, strict=True):
            if abs(int(taken[row]) - line["cycles"]) > (TOLERANCE * line["cycles"] if dma else 0):
                return f"{program.table.describe(row)} takes {taken[row]} cycles, not {line['cycles']}"
    if abs(found.cycles - about["total_cycles"]) > TOLERANCE * about["total_cycles"]:
        return f"all takes {found.cycles} cycles, not {about['total_cycles']}"
    return ""
