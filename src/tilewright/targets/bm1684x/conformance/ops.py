"""Replay the golden vectors of operations: write the operands to memory, run the command, compare its results.

Operands of compute commands lie one after another in local memory, starting in lane 0. Operands of DMA and HAU commands
lie in DDR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, TilewrightError
from tilewright.files import untrusted
from tilewright.targets.base import ConformCase
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.conformance.calls import Call, call_of
from tilewright.targets.bm1684x.conformance.vectors import REMEDY, arrays, described, replay_layouts, replay_network
from tilewright.targets.bm1684x.isa.command import Command, Constant, read
from tilewright.targets.bm1684x.isa.operations import TIU, Operation
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Flat, Matrix, Operand, Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.floats import as_stored
from tilewright.targets.bm1684x.values.memory import Memories
from tilewright.targets.bm1684x.values.window import Window

DDR_BYTES = 1 << 20
CONFIG = Config()
#: Tolerance for functions that the machine iterates, in units in the last place.
ULPS = 4
#: For each vector that tests two functions at once: the outputs, and the function that computes each output.
PAIRS = {"fp32_tunable_reciprocal_and_rsqrt": (("recip", "fp_reciprocal"), ("rsqrt", "fp_rsqrt"))}


@dataclass
class Allocator:
    """Allocates memory for the operands and results of one command."""

    config: Config
    memories: Memories
    operation: Operation
    case: Mapping[str, Any]
    offset: int = 0

    def operand(self, name: str, values: Array, dtype: DType) -> Operand:
        """Allocate memory for an operand, and write `values` there. Raises InputError if local memory is full."""
        placed = self.result(name, values.shape, dtype)
        self.memories.fill(placed.addresses, np.ascontiguousarray(values).view(dtype.storage))
        return placed

    def result(self, name: str, shape: tuple[int, ...], dtype: DType) -> Operand:
        """Allocate uninitialised memory for an operand or result. Raises InputError if local memory is full."""
        placed = self._placed(name, shape, dtype)
        tensor = placed.storage
        end = tensor.lane_end if tensor.is_local else self.offset + tensor.shape.elements * dtype.bytes
        self.offset = -(-end // 64) * 64
        return placed

    def _placed(self, name: str, shape: tuple[int, ...], dtype: DType) -> Operand:
        if self.operation.engine != TIU:
            if not any(region.base == DDR_BASE for region in self.memories.regions):
                self.memories.new_ddr(DDR_BASE, DDR_BYTES)
            linear = Tensor.ddr(DDR_BASE + self.offset, (1, 1, 1, *shape)[-4:], dtype, self.config)
            return linear if len(shape) == 4 else Flat(linear)
        if name == "w" and "conv2d" in self.operation.name:
            oc, ic, kh, kw = shape
            return ConvWeights(LOCAL_BASE + self.offset, (oc, ic, kh, kw), dtype, self.config)
        if len(shape) == 2:
            rows, columns = shape
            width = (self.case.get("lw") if name == "L" else None) or self.case.get("rw")
            if width:
                return Matrix.local(0, self.offset, (rows, columns), min(width, columns), dtype, self.config)
            return Rows(Tensor.local(0, self.offset, (1, rows, 1, columns), dtype, self.config))
        if len(shape) == 1:
            return Flat(Tensor.ddr(LOCAL_BASE + self.offset, (1, 1, 1, *shape), dtype, self.config))
        compact = name == "bias" or (name == "w" and "depthwise" in self.operation.name)
        kind = "compact" if compact else "line" if name == "y" and self.operation.name == "cw_trans" else "aligned"
        return Tensor.local(0, self.offset, shape, dtype, self.config, kind)


def replay(path: Path) -> Iterator[ConformCase]:
    """Yield the results of a family's test cases: first the recorded cases, then the cases that must be refused."""
    golden = arrays(path)
    memories = Memories(CONFIG)
    for case in described(path.with_suffix(".json")):
        values = {name: golden[f"{case['id']}/in/{name}"] for name in case["inputs"]}
        expected = {name: golden[f"{case['id']}/out/{name}"] for name in case["outputs"]}
        yield _outcome(case, values, expected, memories)
    refused = path.with_name("rejected.json")
    if refused.is_file():
        for number, case in enumerate(described(refused)):
            if case["family"] == path.stem:
                yield _refused(number, case)


def _outcome(
    case: Mapping[str, Any], values: Mapping[str, Array], expected: Mapping[str, Array], memories: Memories
) -> ConformCase:
    calls = PAIRS.get(case["op"], (("", case["op"].removesuffix("_broadcast")),))
    try:
        for output, name in calls:
            parameters = {"dtype": "f32", **case} if output else case
            call = call_of(name)
            command = lay_out(call, parameters, values, expected, memories, output)
            results = command.run(memories)
            for result, operand in command.results.items():
                golden = expected[output or call.renamed.get(result, result)]
                computed = read(memories, operand).reshape(-1)[: golden.size].reshape(golden.shape)
                if reason := differs(computed, golden, operand.dtype, ULPS if command.operation.inexact else 0):
                    return ConformCase(case["id"], False, f"{case['op']}: {result} {reason}")
            if "count" in expected and results["count"] != expected["count"]:
                return ConformCase(case["id"], False, f"{case['op']}: counts {results['count']}")
    except TilewrightError as error:
        return ConformCase(case["id"], False, f"{case['op']}: {error}")
    return ConformCase(case["id"], True)


def lay_out(
    call: Call,
    case: Mapping[str, Any],
    values: Mapping[str, Array],
    expected: Mapping[str, Array],
    memories: Memories,
    output: str = "",
) -> Command:
    memory = Allocator(CONFIG, memories, call.described, case)
    vector_names = {name: call.renamed.get(name, name) for name in call.described.inputs}
    if "y_before" in vector_names and "y_before" not in values:  # a scatter preserves all other elements
        values = {**values, "y_before": np.zeros_like(expected["y"])}
    present = (name for name, key in vector_names.items() if key in values or name in call.constants)
    types = call.types_of(case, tuple(present))
    operands: dict[str, Operand | Constant] = {
        name: Constant(bits, types[name]) for name, bits in call.constants_of(case).items()
    }
    shape = next((values.shape for values in expected.values()), ())
    for name, vector_name in vector_names.items():
        if vector_name in values and name not in operands:
            operands[name] = memory.operand(name, call.arrange(name, values[vector_name], shape), types[name])
    if "b_stride" in case:
        b = operands["b"]
        assert isinstance(b, Tensor)  # its strides broadcast it to a larger shape
        operands["b"] = replace(b, shape=layout.Shape(*shape), stride=layout.Stride(*case["b_stride"]))
    results = {}
    for name in call.described.outputs:
        vector_name = output or call.renamed.get(name, name)
        if vector_name in expected and vector_name != "count":
            results[name] = memory.result(name, call.arrange(name, expected[vector_name], shape).shape, types[name])
    attributes = call.attributes_of(case)
    if "pad_tblr" in case:
        kernel = case.get("kernel") or values["w"].shape[-2:]
        window = Window(tuple(kernel), tuple(case["pad_tblr"]), tuple(case["stride"]), tuple(case["dilation"]))
        attributes["window"] = window
    return Command(call.described, operands, results, attributes)


def differs(values: Array, expected: Array, dtype: DType, ulps: int) -> str:
    """Return a message if elements differ by more than `ulps` units in the last place, else "". NaNs are equal."""
    left, right = (x.reshape(-1).view(f"<u{dtype.bytes}").astype(np.int64) for x in (values, expected))
    wrong = left != right
    if dtype.is_float:
        with np.errstate(invalid="ignore"):
            wrong &= ~(np.isnan(as_stored(values, dtype)) & np.isnan(as_stored(expected, dtype))).reshape(-1)
        # As unsigned bit patterns, negative floats are in reverse order. This maps each float to an integer such that
        # adjacent floats have adjacent integers.
        if ulps:
            sign = 1 << (dtype.bits - 1)
            left, right = (np.where(bits >= sign, sign - bits, bits) for bits in (left, right))
            wrong &= np.abs(left - right) > ulps
    if not wrong.any():
        return ""
    return f"differs in {int(wrong.sum())} of {wrong.size} elements, the first is number {int(np.argmax(wrong))}"


def _refused(number: int, case: Mapping[str, Any]) -> ConformCase:
    optional = ("bias",) if case.get("bias", True) else ()
    text = ", ".join(f"{key} {value}" for key, value in case.items() if key not in ("family", "op"))
    try:
        call = call_of(case["op"])
        refusal = call.described.refusal(call.types_of(case, (*optional, "shift", "zero")), call.attributes_of(case))
        reason = "" if refusal else f"{case['op']} ({text}) is not refused"
    except TilewrightError as error:  # an error is not the expected refusal
        reason = str(error)
    return ConformCase(f"rejected {case['family']} {number}", not reason, reason)


def conform(path: Path) -> Iterator[ConformCase]:
    """Replay the test cases in one .npz file of golden vectors, and yield the result of each case.

    The file tests layouts, a family of operations, or a compiled network. Nothing is yielded for a file that has only
    the inputs or outputs of a network. Raises InputError if the file is not a golden vector, or an array or key is
    missing.
    """
    with untrusted(path, REMEDY):
        if path.stem == "layout_addresses":
            yield from replay_layouts(path)
        elif path.name.endswith(".cmdbuf.npz"):
            yield from replay_network(path)
        elif path.with_suffix(".json").is_file():
            yield from replay(path)
        elif not (path.name == "input.npz" or path.name.endswith(".output.npz")):
            raise InputError(str(path), "is not a golden vector of the BM1684X", REMEDY)
