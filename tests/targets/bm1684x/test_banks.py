"""The chart of lanes and banks, against the addresses of every element and a count in every cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright.sim.chart import Chart
from tilewright.sim.steps import READ, WRITE, Trace
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.launch.run import PreparedLaunch, prepare
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.timing.banks import reach
from tilewright.targets.bm1684x.values.dtypes import F32, I8

Places = set[tuple[int, int]]  # lane and bank
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


@pytest.fixture(scope="module", params=[{}, {"lanes": "4"}, {"bank_bytes": "1024"}])
def launch(request: pytest.FixtureRequest) -> PreparedLaunch:
    program = tw.compile(DIGITS, "bm1684x", overrides=request.param)
    return prepare(program.launches[0], Config.read(program.config, {}))


def places(tensor: Tensor, config: Config) -> Places:
    """The lane and bank of every byte of a tensor."""
    first = tensor.addresses.reshape(-1)
    touched: Places = set()
    for byte in range(tensor.dtype.bytes):
        lane, offset = np.divmod(first + byte - LOCAL_BASE, config.lane_bytes)
        touched |= set(zip(lane.tolist(), (offset // config.bank_bytes).tolist(), strict=True))
    return touched


def used(command: Command, config: Config) -> dict[int, Places]:
    """The places that a command reads and that it writes, by mode."""
    by_mode: dict[int, Places] = {READ: set(), WRITE: set()}
    for mode, _, place in command.in_memory:
        if place.storage.is_local:
            by_mode[mode] |= places(place.storage, config)
    return by_mode


def told(chart: Chart) -> list[tuple[str, str, int, int, int]]:
    """Each box: its row, its text, start, end and step."""
    return [
        (chart.rows[row].name, chart.kinds[kind].text.replace("#", str(number)), start, end, step)
        for row, kind, number, start, end, step in chart.boxes.T.tolist()
    ]


def expected(commands: Sequence[Command], trace: Trace, config: Config) -> list[tuple[str, str, int, int, int]]:
    """The boxes of lanes and of used banks."""
    boxes = []
    for step, command in enumerate(commands):
        by_mode, unit = used(command, config), trace.table.units[trace.table.unit[step]]
        span = (int(trace.start[step]), int(trace.end[step]), step)
        lanes = {lane for lane, _ in by_mode[WRITE]}
        if unit == "tiu":
            boxes.append(("lanes", f"{len(lanes)} of {config.lanes} lanes compute", *span))
        for bank in range(config.banks):
            modes = [
                word for mode, word in ((READ, "reads"), (WRITE, "writes")) if any(b == bank for _, b in by_mode[mode])
            ]
            number = len({lane for lane, b in by_mode[READ] | by_mode[WRITE] if b == bank})
            if modes:
                text = f"{unit} {' and '.join(modes)} in {number} of {config.lanes} lanes"
                boxes.append((f"bank {bank}", text, *span))
    return boxes


def test_boxes_are_the_banks_of_all_elements(launch: PreparedLaunch) -> None:
    trace = launch.trace
    assert trace.chart
    shown = [box for box in told(trace.chart) if "use the bank" not in box[1] and "operands" not in box[1]]
    assert sorted(shown) == sorted(expected(launch.program.commands, trace, launch.config))
    assert (np.diff(trace.chart.boxes[3]) >= 0).all()


def test_conflicts_are_those_of_every_cycle(launch: PreparedLaunch) -> None:
    trace, config = launch.trace, launch.config
    assert trace.chart
    running: dict[str, dict[int, Places]] = {"tiu": defaultdict(set), "dma": defaultdict(set)}
    for step, command in enumerate(launch.program.commands):
        by_mode = used(command, config)
        for cycle in range(int(trace.start[step]), int(trace.end[step])):
            running[trace.table.units[trace.table.unit[step]]][cycle] |= by_mode[READ] | by_mode[WRITE]
    both = {(cycle, *place) for cycle, mine in running["tiu"].items() for place in mine & running["dma"][cycle]}
    lanes: dict[tuple[int, int], int] = defaultdict(int)
    for cycle, _, bank in both:
        lanes[cycle, bank] += 1
    shown: dict[tuple[int, int], int] = {}
    for row, text, start, end, _ in told(trace.chart):
        if text.startswith("tiu and dma use the bank in "):
            for cycle in range(start, end):
                assert (cycle, int(row.split()[1])) not in shown
                shown[cycle, int(row.split()[1])] = int(text.split(" in ")[1].split()[0])
    assert shown == dict(lanes)
    assert shown


def test_operands_that_share_a_bank_are_counted(launch: PreparedLaunch) -> None:
    trace, config = launch.trace, launch.config
    assert trace.chart
    boxes = set()
    for step, command in enumerate(launch.program.commands):
        if trace.table.units[trace.table.unit[step]] != "tiu":
            continue
        tensors = {place.storage for _, _, place in command.in_memory if place.storage.is_local}
        banks = [{bank for _, bank in places(tensor, config)} for tensor in tensors]
        for bank in range(config.banks):
            if (count := sum(bank in operand_banks for operand_banks in banks)) > 1:
                boxes.add((f"bank {bank}", f"{count} operands of one command share the bank", step))
    assert {(row, text, step) for row, text, _, _, step in told(trace.chart) if "operands" in text} == boxes
    assert boxes


@pytest.mark.parametrize("seed", range(30))
def test_a_tensor_reaches_into_the_banks_of_its_bytes(seed: int) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    config = replace(Config(), lanes=int(rng.choice([2, 8, 64])), bank_bytes=256)
    dtype = (I8, F32)[seed % 2]
    shape = Shape(*(int(rng.integers(1, most)) for most in (4, 3 * config.lanes, 5, 20)))
    kind = str(rng.choice(["aligned", "compact"]))
    start, offset = int(rng.integers(config.lanes)), 64 * int(rng.integers(8))
    tensor = Tensor.local(start, offset, shape, dtype, replace(config, banks=64), kind)
    reached = {(lane, bank) for lane, bank in np.argwhere(reach(tensor, tensor.config)).tolist()}
    assert reached == places(tensor, tensor.config)
