"""A network as a program: neighbouring nodes that the firmware has kernels for are one launch, others the host's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph.ir import Graph
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program, grouped
from tilewright.targets.cfu.config import Config

from . import firmware, layout, toolchain
from .arena import Value, place
from .coupling import couple, packed_rows
from .records import Operator, operator
from .variants import Variant

NAME = "cfu"
#: More than any firmware takes.
PROGRAM_BYTES = 1 << 20


def compile_graph(
    graph: Graph, config: Config, rounding: str, variant: Variant, compiler: toolchain.Compiler | None = None
) -> Program:
    """The program of a network: its operators grouped into launches."""
    compiler = compiler or toolchain.find()
    mode = rounding_mode(rounding)
    found = {site.node.name: operator(site, mode) for site in graph.sites()}
    steps: list[Launch | HostStep] = []
    for group in grouped(found):
        steps += [_launch(graph, group, config, variant, compiler)] if isinstance(group, dict) else group
    return Program(NAME, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def _launch(
    graph: Graph, operators: dict[str, Operator], config: Config, variant: Variant, compiler: toolchain.Compiler
) -> Launch:
    values = lifetimes(graph, operators)
    offsets, arena_bytes = place(values)
    count = len(operators)
    outputs = {made.activations["output"] for made in operators.values()}
    entering = [value.name for value in values if value.name not in outputs]
    leaving = [value.name for value in values if value.name in outputs and value.last == count]
    records = [_record(made, offsets) for made in operators.values()]
    extensions = config.extension_names if variant.header == "coupled" else ()
    moves = couple(records, [made.activations for made in operators.values()], leaving, extensions, config.buffer_rows)
    constants = bytearray()
    for record, made, move in zip(records, operators.values(), moves, strict=True):
        record.update(move)
        for field, array in made.constants.items():
            record[field] = layout.constants_at(count) + len(constants)
            constants += _bytes(packed_rows(array) if field == "weights" and record["coupled"] else array)
    blob = layout.pack(records, bytes(constants), arena_bytes)
    need = len(blob) + arena_bytes + layout.STACK_BYTES + PROGRAM_BYTES
    if need > config.ram_bytes:
        raise UnsupportedError("model", f"needs {need} bytes of main memory; there are {config.ram_bytes}")
    program = firmware.build(variant, records, config, compiler)
    names = list(operators)
    meta: dict[str, Any] = {
        "variant": variant.name,
        "compiler": compiler.version,
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


def _record(made: Operator, offsets: Mapping[str, int]) -> dict[str, int]:
    """An operator's record without its constants; fields that it does not use are 0."""
    places = {field: offsets[name] for field, name in made.activations.items()}
    return dict.fromkeys(layout.RECORD, 0) | {"kind": int(made.kind), **made.words, **places}


def lifetimes(graph: Graph, operators: dict[str, Operator]) -> list[Value]:
    """Every activation of a launch; `last` is the number of operators for what is needed afterwards."""
    count, first, last = len(operators), dict[str, int](), dict[str, int]()
    for index, made in enumerate(operators.values()):
        for field, name in made.activations.items():
            first.setdefault(name, index if field == "output" else -1)
            last[name] = index
    outside = {name for node in graph.nodes if node.name not in operators for name in node.inputs}
    for name in first:
        if first[name] >= 0 and (name in outside or name in graph.outputs):
            last[name] = count
    return [Value(name, graph.tensors[name].nbytes, first[name], last[name]) for name in first]


def _bytes(array: Array) -> bytes:
    """An int8 or int32 array as little-endian bytes, padded to where the next may begin."""
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return data.ljust(layout.aligned(len(data)), b"\0")
