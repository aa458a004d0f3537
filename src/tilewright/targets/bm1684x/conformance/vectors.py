"""Read golden vector files (see section "ops" of their README), and replay the vectors of layouts and networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import files
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.fields import parsed
from tilewright.files import Entries, untrusted
from tilewright.sim.findings import Finding
from tilewright.targets.base import ConformCase
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.elaborate import elaborate
from tilewright.targets.bm1684x.isa.stream import decode, encode
from tilewright.targets.bm1684x.isa.undefined import findings as hazards_of
from tilewright.targets.bm1684x.layouts.placement import LayoutRequest, place
from tilewright.targets.bm1684x.timing.estimate import trace
from tilewright.targets.bm1684x.values.memory import Memories

REMEDY = "give a golden vector file of tpu_vectors"
CONFIG = Config()
#: For each transposed layout: the name of the stored layout, and the order of its axes.
TRANSPOSED: Mapping[str, tuple[str, Sequence[int]]] = {
    "matrix_T": ("matrix", (1, 0)),
    "nc_trans": ("aligned", (1, 0, 2, 3)),
    "cw_trans": ("aligned", (0, 3, 2, 1)),
}


def arrays(path: Path) -> Mapping[str, Array]:
    """Return the arrays in an .npz file by name. An unreadable file or access to a missing array raises InputError."""
    return Entries(path, "array", REMEDY, files.arrays(path, remedy=REMEDY))


def described(path: Path) -> Any:
    """Return the contents of a .json file. An unreadable file, or access to a missing key, raises InputError."""
    with untrusted(path, REMEDY):
        return _entries(path, parsed(files.regular(path).read_bytes()))


def _entries(path: Path, value: Any) -> Any:
    if isinstance(value, dict):
        return Entries(path, "key", REMEDY, {key: _entries(path, item) for key, item in value.items()})
    return [_entries(path, item) for item in value] if isinstance(value, list) else value


def replay_layouts(path: Path) -> Iterator[ConformCase]:
    """Compare the addresses in layout_addresses.npz with computed addresses, and yield the result of each case."""
    golden = arrays(path)
    for case in described(path.with_suffix(".json")):
        computed = addresses(case)
        expected = golden[case["id"]]
        same = computed.shape == expected.shape and bool((computed == expected).all())
        reason = "" if same else f"{case['kind']} {case['shape']} from lane {case['start_lane']}: addresses differ"
        yield ConformCase(f"layout {case['id']}", same, reason)


def addresses(case: Mapping[str, Any]) -> Array:
    """Return, for each element of a test case, its byte offset in local memory, in the shape that golden vectors store.

    The layout that golden vectors call `aligned` is called `dma` here: the default layout of a DMA copy.
    """
    kind = case["kind"]
    shape = case["shape"]
    if kind == "bcast":
        return _broadcast(case)
    kind, order = TRANSPOSED.get(kind, ({"aligned": "dma"}.get(kind, kind), range(len(shape))))
    return _addresses_in(case, kind, [shape[axis] for axis in order]).transpose(order)


def _addresses_in(case: Mapping[str, Any], kind: str, shape: Sequence[int]) -> Array:
    stride = case["param"] if kind == "free" else None
    width = case["param"][0] if kind in ("matrix", "vector") else None
    request = LayoutRequest(kind, shape, case["dtype"], case["start_lane"], case["lane_offset"], stride, width)
    return (place(request, CONFIG).operand.addresses - LOCAL_BASE).reshape(shape)


def _broadcast(case: Mapping[str, Any]) -> Array:
    n, _, h, w = case["shape"]
    places = _addresses_in(case, "dma", (n, case["param"][0], h, w))
    # The golden array has a row of source indices, and a row with the byte offsets of their copies, in ascending order.
    source = np.broadcast_to(np.arange(n * h * w).reshape(n, 1, h, w), places.shape)
    order = np.argsort(places.ravel(), kind="stable")
    return np.stack([source.ravel()[order], places.ravel()[order]])


#: The number of bytes of DDR for intermediate results, after the network's last input, output or coefficient.
SPARE = 1 << 22
#: The formats of commands whose cycles must match the timeline exactly, and the relative tolerance for transfers and
#: totals.
EXACT = ("CONV", "MM", "MM2", "PorD")
TOLERANCE = 0.1
QUEUES = ("tiu", "dma")


Group = tuple[int, int]


def replay_network(path: Path) -> Iterator[ConformCase]:
    """Yield the results for one network and precision: command fields, outputs (if it has coefficients) and cycles."""
    vector = arrays(path)
    about = described(path.with_name(path.name.replace(".cmdbuf.npz", ".json")))
    name = f"{about['net']} {about['quant']}"
    queues = _groups(vector)
    yield _case(f"{name} fields", lambda: fields(queues, about["commands"]))
    if "coeff" in vector:
        yield _case(f"{name} output", lambda: output(path, queues, vector["coeff"], about["io"]))
    yield _case(f"{name} cycles", lambda: timing(queues, about))


def _groups(vector: Mapping[str, Array]) -> dict[Group, dict[str, Array]]:
    groups: dict[Group, dict[str, Array]] = {}
    for name, raw in vector.items():
        engine, _, numbers = name.partition("_")
        if engine in QUEUES:
            subnet, _, group = numbers.partition("_")
            groups.setdefault((int(subnet), int(group)), {})[engine] = raw
    return dict(sorted(groups.items()))


def _case(name: str, compare: Any) -> ConformCase:
    try:
        reason: str = compare()
    except TilewrightError as error:
        reason = str(error)
    return ConformCase(name, not reason, reason)


def fields(queues: Mapping[Group, Mapping[str, Array]], stored: list[Mapping[str, Any]]) -> str:
    """Decode the queues and encode them again. Return a message about the first wrong field or byte, or ""."""
    for group, engine, raw in ((group, *item) for group, by_engine in queues.items() for item in by_engine.items()):
        decoded = decode(engine, raw)
        of_group = [command for command in stored if (command["subnet"], command["group"]) == group]
        expected = [command for command in of_group if command["engine"] == engine]
        if len(decoded) != len(expected):
            return f"{engine}: {len(decoded)} commands, not {len(expected)}"
        for command, golden in zip(decoded, expected, strict=True):
            if dict(command.fields) != golden["fields"]:
                return f"{command} decodes to other fields"
        again = encode(decoded)
        # the vendor pads queues with zeros
        if (again != raw[: len(again)]).any() or raw[len(again) :].any():
            return f"{engine}: encoding it again gives other bytes"
    return ""


def memory(path: Path, coefficients: Array, io: Mapping[str, Any]) -> Memories:
    """Return memories that contain the tables, coefficients and inputs of a compiled network at their addresses."""
    memories = Memories(CONFIG)
    inputs = arrays(path.with_name("input.npz"))
    pieces = {tensor["address"]: inputs[tensor["name"]] for tensor in io["inputs"]}
    if coefficients.size:
        pieces[io["coeff_address"]] = coefficients
    ends = [address + values.nbytes for address, values in pieces.items()]
    # an element has at most 4 bytes
    ends += [tensor["address"] + 4 * int(np.prod(shape)) for tensor in io["outputs"] for shape in tensor["shape"]]
    memories.new_ddr(DDR_BASE, max(ends) - DDR_BASE + SPARE)
    for address, values in pieces.items():
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        memories.fill(address + np.arange(len(data), dtype=np.int64), data)
    return memories


def output(path: Path, queues: Mapping[Group, Mapping[str, Array]], coefficients: Array, io: Mapping[str, Any]) -> str:
    """Run the queues of a network. Return a message about the first hazard or the first wrong output, or ""."""
    memories = memory(path, coefficients, io)
    for group_queues in queues.values():
        program = elaborate(group_queues, CONFIG, memories.regions)
        findings: list[Finding] = [*program.order.findings, *hazards_of(program)]
        if findings:
            return f"a correct program has a finding: {findings[0]}"
        program.run(memories)
    stored = arrays(path.with_name(path.name.replace(".cmdbuf.", ".output.")))
    ddr = memories.region_of(DDR_BASE, DDR_BASE + 1).data
    for tensor in io["outputs"]:
        expected = stored[tensor["name"]]
        start = tensor["address"] - DDR_BASE
        values = ddr[start : start + expected.nbytes].view(expected.dtype).reshape(expected.shape)
        # comparing bits makes NaNs equal
        wrong = values.view(f"u{expected.itemsize}") != expected.view(f"u{expected.itemsize}")
        if wrong.any():
            return f"{tensor['name']} differs in {int(wrong.sum())} of {wrong.size} elements"
    return ""


def timing(queues: Mapping[Group, Mapping[str, Array]], about: Mapping[str, Any]) -> str:
    """Return a message about the first difference between estimated cycles and the stored timeline, or "".

    The cycles of convolutions, matrix products and pools must match exactly. Those of transfers, and
    the total, may differ from the vector's by the fraction TOLERANCE; 1 cycle of difference is always allowed. A stored
    total of null is not compared.
    """
    total = 0
    lines: dict[str, list[Mapping[str, Any]]] = {engine: [] for engine in QUEUES}
    for line in about["timeline"]:
        lines["dma" if line["type"].startswith("GDMA") else "tiu"].append(line)
    for group_queues in queues.values():
        program = elaborate(group_queues, CONFIG)
        estimate = trace(program, CONFIG)
        total += estimate.cycles
        for row, spent in enumerate((estimate.end - estimate.start).tolist()):
            left = lines[program.steps[row].engine]
            if not left:
                return f"the timeline has no line for {program.table.describe(row)}"
            line = left.pop(0)  # the timeline has the engine's order as well
            moves = line["type"].startswith("GDMA")
            slack = max(1, TOLERANCE * line["cycles"]) if moves else 0  # others count only in the total
            if (moves or line["type"] in EXACT) and abs(spent - line["cycles"]) > slack:
                return f"{program.table.describe(row)} takes {spent} cycles, not {line['cycles']}"
    stored = about["total_cycles"]
    if stored is not None and abs(total - stored) > TOLERANCE * stored:
        return f"the network takes {total} cycles, not {stored}"
    return ""
