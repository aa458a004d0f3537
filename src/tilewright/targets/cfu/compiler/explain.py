"""A program for people: the firmware, the memory map, and each operator with its kernel's operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.program.program import HostStep, Launch, Program
from tilewright.targets.base import LaunchResult
from tilewright.targets.cfu.image import BASE, FirmwareImage

from .layout import LINEAR, activation_bytes, constant_bytes
from .variants import VARIANTS


def explain(program: Program, taken: Mapping[str, tuple[str, LaunchResult]]) -> str:
    """One paragraph a step; with the timing model and the run of launches that ran on a sample of zeros."""
    lines: list[str] = []
    for step in program.steps:
        if isinstance(step, HostStep):
            lines.append(f"{step.name}: host, {step.reason}")
        else:
            lines += _launch(step, *taken.get(step.name, ("", None)))
    return "\n".join(lines) + "\n"


def _launch(launch: Launch, timing: str, result: LaunchResult | None) -> Iterator[str]:
    image = FirmwareImage.of(launch)
    name = launch.meta.get("variant", "")
    about = VARIANTS[name].about if name in VARIANTS else "assembled"
    yield f"{launch.name}: cfu, firmware '{name}': {about}; {launch.meta.get('compiler', 'no compiler')}"
    code, data = 4 * len(image.words), len(image.data)
    yield f"  {BASE:#x} code {code} bytes, data {data}; {image.model:#x} model {len(image.blob)} bytes"
    yield f"  {image.arena:#x} arena {image.header['arena_bytes']} bytes; the stack ends at the top of memory"
    if result and result.trace:
        yield f"  {result.trace.cycles} cycles on a sample of zeros (timing model {timing})"
    else:
        yield "  cycles depend on data: --timing MODEL runs a sample of zeros"
    for index, (node, kind, record) in enumerate(zip(launch.nodes, image.kinds, image.records, strict=False)):
        cycles = f"; {result.parts[index].cycles} cycles" if result and result.parts else ""
        yield f"  {node}: {kind} {_operands(record)}{cycles}"


def _operands(record: Mapping[str, int]) -> str:
    shape = "x".join(str(record[name]) for name in ("in_h", "in_w", "in_c"))
    to = "x".join(str(record[name]) for name in ("out_h", "out_w", "out_c"))
    window = f", window {record['kernel_h']}x{record['kernel_w']}" if record["kernel_h"] else ""
    places = ", ".join(f"{field} at {record[field]} ({size})" for field, size in activation_bytes(record).items())
    constants = f"; constants {sum(constant_bytes(record).values())} bytes" if record["kind"] in LINEAR else ""
    return f"{shape} -> {to}{window}; {places}{constants}"
