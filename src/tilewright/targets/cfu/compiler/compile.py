"""Compile a network. Neighbouring nodes with a kernel in the firmware become one launch; other nodes run on the host.

The arena is the memory for activations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError, option
from tilewright.graph.ir import Graph
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program, grouped
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.schedule import Lived, place
from tilewright.targets.base import LaunchResult
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.firmware_image import FirmwareImage
from tilewright.targets.cfu.runtime import elf

from . import firmware, layout
from .layout import GAP, LINEAR, Coupled, Kind, activation_bytes, aligned, constant_bytes
from .project import PROGRAM_BYTES, Project, kernel_names
from .records import Operator, channel_table, couple, in_place, operator, packed_rows
from .variants import VARIANTS, Variant

NAME = "cfu"
Records = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class Build:
    """The firmware for a network: a variant, or the user's `project` with its ELF program `linked`.

    `extensions` has the extensions that the kernels use. `tuned` is true if the firmware has the kernels of the variant
    `tuned`.
    """

    config: Config
    variant: Variant
    compiler: firmware.Compiler | None
    project: Project | None
    linked: elf.Executable | None
    tuned: bool
    extensions: Collection[str]

    def program(self, records: Records) -> elf.Executable:
        if self.linked:
            return self.linked
        assert self.compiler is not None
        return firmware.firmware(self.variant, records, self.config, self.compiler)

    def meta(self, program: elf.Executable, records: Records) -> dict[str, Any]:
        version = self.compiler.version if self.compiler else "an ELF file"
        if self.project is None:
            return {"variant": self.variant.name, "compiler": version}
        names = kernel_names(program)
        kernels = [names.get(Kind(record["kind"]), "main.c") for record in records]
        return {"variant": str(self.project.path), "compiler": version, "kernels": kernels}


def arena(values: Sequence[Lived]) -> tuple[dict[str, int], int]:
    """Place activations in the arena. Return the byte offset of each activation by name, and the arena's size in bytes.

    Activations that live at the same time (such as the inputs and the output of an operator) do not overlap. The
    largest activation is placed first, because small activations fit into gaps. Each activation gets the lowest offset
    that is free during its lifetime.
    """
    with_gaps = (
        value._replace(size=aligned(value.size) + GAP)
        for value in sorted(values, key=lambda value: (-value.size, value.first, value.name))
    )
    offsets, end = place(with_gaps)
    return offsets, max(0, end - GAP)


def compile_graph(
    graph: Graph,
    config: Config,
    rounding: str,
    variant: Variant,
    compiler: firmware.Compiler | None = None,
    project: Project | None = None,
) -> Program:
    """Return the program of a network.

    `project` is the user's firmware, which replaces `variant`. If `compiler` is None, the preferred installed compiler
    is used. Raises UnsupportedError if no RISC-V compiler is installed, or if a launch does not fit into main memory.
    Raises InputError if the project cannot be compiled.
    """
    compiler = None if project and project.compiled else compiler or firmware.find()
    linked = project.program(config, compiler) if project else None
    extensions = config.extension_names if variant.header == "coupled" and not project else ()
    build = Build(config, variant, compiler, project, linked, variant.tuned and not project, extensions)
    mode = rounding_mode(rounding)
    lowered = {site.node.name: operator(site, mode) for site in graph.sites()}
    steps: list[Launch | HostStep] = []
    for group in grouped(lowered):
        steps += [_launch(graph, group, build)] if isinstance(group, dict) else group
    return Program(NAME, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def _launch(graph: Graph, operators: dict[str, Operator], build: Build) -> Launch:
    config = build.config
    count = len(operators)
    tuned = build.tuned
    outputs = {op.activations["output"] for op in operators.values()}
    # The host writes the tensors `entering` to the arena before the launch, and reads the tensors `leaving` after it.
    values = lifetimes(graph, operators)
    entering = [value.name for value in values if value.name not in outputs]
    leaving = [value.name for value in values if value.name in outputs and value.last == count]
    if tuned:  # the removal of copies changes the lifetimes of activations
        operators = in_place(operators, {*entering, *leaving})
        values = lifetimes(graph, operators)
    offsets, arena_bytes = arena(values)
    if build.project:
        arena_bytes += GAP  # so that kernel_check.py can detect stores after the last activation
    places = ({field: offsets[name] for field, name in op.activations.items()} for op in operators.values())
    records = [
        dict.fromkeys(layout.RECORD, 0) | {"kind": int(op.kind), **op.words, **at}
        for op, at in zip(operators.values(), places, strict=True)
    ]
    activations = [op.activations for op in operators.values()]
    moves = couple(records, activations, entering, leaving, build.extensions, config.buffer_rows, tuned)
    constants = bytearray()
    for record, op, move in zip(records, operators.values(), moves, strict=True):
        record.update(move)
        _store(op.constants, record, layout.constants_at(count), constants)
    # The firmware is built last, because the variant `software` is compiled for the shapes in the records.
    blob = layout.pack(records, bytes(constants), arena_bytes)
    need = len(blob) + arena_bytes + layout.STACK_BYTES + PROGRAM_BYTES
    if need > config.ram_bytes:
        raise UnsupportedError(
            "model", f"needs {need} bytes of main memory; there are {config.ram_bytes}", "raise ram_bytes"
        )
    program = build.program(records)
    names = list(operators)
    meta: dict[str, Any] = {
        **build.meta(program, records),
        "entry": program.entry,
        "model": program.symbols["model"].address,
        "symbols": [[name, *symbol] for name, symbol in sorted(program.functions.items())],
        "inputs": [[name, offsets[name], graph.tensors[name].nbytes] for name in entering],
        "outputs": [[name, offsets[name], graph.tensors[name].nbytes] for name in leaving],
    }
    title = names[0] if count == 1 else f"{names[0]}..{names[-1]}"
    words, data = firmware.flat(program)
    arrays = {"insns": words, "data": data, "blob": blob, "elf": np.frombuffer(program.file, np.uint8)}
    return Launch(title, tuple(names), meta, arrays)


def _store(constants: Mapping[str, Array], record: dict[str, int], base: int, stored: bytearray) -> None:
    # Byte `base` of the model data is the first byte of `stored`. The weights of operators on the image memory are rows
    # of buffer B. With the flag TABLE, bias, multiplier and shift of a channel are stored together.
    layouts = dict(constants)
    if record["coupled"] and layouts:
        layouts["weights"] = packed_rows(layouts["weights"])
    if record["coupled"] & Coupled.TABLE:
        layouts["bias"] = channel_table(layouts["bias"], layouts.pop("multiplier"), layouts.pop("shift"))
    for field, array in layouts.items():
        record[field] = base + len(stored)
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        stored += data.ljust(layout.aligned(len(data)), b"\0")


def lifetimes(graph: Graph, operators: dict[str, Operator]) -> list[Lived]:
    """Return the size in bytes and the lifetime of every activation in a launch with n operators.

    Times are indices of the operators. Inputs of the launch live from time -1 on. Tensors that are read after the
    launch live until time n.
    """
    count = len(operators)
    first = dict[str, int]()
    last = dict[str, int]()
    for index, op in enumerate(operators.values()):
        for field, name in op.activations.items():
            # A tensor whose first use is not an output is an input of the launch.
            first.setdefault(name, index if field == "output" else -1)
            last[name] = index
    outside = {name for node in graph.nodes if node.name not in operators for name in node.inputs}
    for name in first:
        if first[name] >= 0 and (name in outside or name in graph.results):
            last[name] = count
    return [Lived(name, graph.tensors[name].nbytes, first[name], last[name]) for name in first]


def explain(program: Program, timing: str, results: Mapping[str, LaunchResult]) -> Stages:
    """Return the stages of a program for `explain`. `results` has the results of launches on zeros, by name."""
    return by_step(program, lambda launch: _explained(launch, timing, results.get(launch.name)))


def _explained(launch: Launch, timing: str, result: LaunchResult | None) -> Stage:
    image = FirmwareImage.of(launch)
    name = launch.meta.get("variant", "")
    kernels = image.kernels
    about = "the user's own" if kernels else VARIANTS[name].about if name in VARIANTS else "assembled"
    title = f"{launch.name}: cfu, firmware '{name}': {about}; {launch.meta.get('compiler', 'no compiler')}"
    code = 4 * len(image.words)
    data = len(image.data)
    lines = [f"{RAM_BASE:#x} code {code} bytes, data {data}; {image.model:#x} model {len(image.blob)} bytes"]
    lines += [f"{image.arena:#x} arena {image.header['arena_bytes']} bytes; the stack ends at the top of memory"]
    if result and result.trace:
        lines.append(f"{result.trace.cycles} cycles on a sample of zeros (timing model {timing})")
    else:
        lines.append(f"cycles depend on data: {option('--timing MODEL', 'a timing model')} runs a sample of zeros")
    for index, (node, kind, record) in enumerate(zip(launch.nodes, image.kinds, image.records, strict=False)):
        shape, to = ("x".join(str(record[f"{end}_{axis}"]) for axis in "hwc") for end in ("in", "out"))
        window = f", window {record['kernel_h']}x{record['kernel_w']}" if record["kernel_h"] else ""
        places = ", ".join(f"{field} at {record[field]} ({size})" for field, size in activation_bytes(record).items())
        constants = f"; constants {sum(constant_bytes(record).values())} bytes" if record["kind"] in LINEAR else ""
        cycles = f"; {result.figures[index].cycles} cycles" if result else ""
        by = f" by {kernels[index]}" if kernels else ""
        lines.append(f"{node}: {kind} {shape} -> {to}{window}{by}; {places}{constants}{cycles}")
    return Stage(title, lines)
