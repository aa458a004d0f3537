"""What tiles wait for: rows of the input, constants in bundles, and buffers that do not overlap."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tests.targets.bm1684x.networks import Builder
from tilewright.program.program import Program
from tilewright.targets.bm1684x.compiler.plan import MOST_BYTES, bundled
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.operations import DMA
from tilewright.targets.bm1684x.launch.run import PreparedLaunch, prepare


def prepared_launch(program: Program) -> PreparedLaunch:
    (launch,) = program.launches
    return prepare(launch, Config())


def test_the_first_tile_waits_only_for_its_rows() -> None:
    """16 rows of 100 codes are a multiple of 64 bytes: cut elsewhere, two loads would share 64 bytes."""
    build = Builder(6, (112, 100, 60))
    prepared = prepared_launch(tw.compile(build.graph(build.conv(build.input, 64)), "bm1684x"))
    names = [step.command.operation.name for step in prepared.program.steps]
    loads = [row for row, step in enumerate(prepared.program.steps) if step.engine == DMA and names[row] == "dma_copy"]
    first = names.index("int8_asym_quant_conv2d")
    images = [row for row in loads if prepared.program.steps[row].command.results["y"].shape[2] > 1]
    assert len(images) > 2  # with the store of the result
    assert prepared.trace.start[first] < prepared.trace.end[images[1]]


def test_blocks_share_transfers_where_that_is_faster() -> None:
    config, random = Config(), np.random.default_rng(7)
    sizes = (64, 64, 128, 192, 8192, 64, 64, MOST_BYTES, 64)
    blocks = {(n, 0): random.integers(0, 256, (64, size)).astype(np.uint8) for n, size in enumerate(sizes)}
    bundles = bundled(blocks, lambda key: 64, lambda before, after: False, config)
    groups = [[key[0] for key in bundle.begins] for bundle in bundles]
    assert groups[0] == [0]  # the first layer waits for it
    assert [number for group in groups for number in group] == list(range(len(sizes)))
    assert [1, 2, 3] in groups
    assert [4] in groups
    for bundle in bundles:
        for key, begin in bundle.begins.items():
            np.testing.assert_array_equal(bundle.data[:, begin : begin + blocks[key].shape[1]], blocks[key])
    alone = bundled(blocks, lambda key: 64, lambda before, after: True, config)
    assert len(alone) == len(sizes)


def test_no_command_takes_longer_because_its_buffers_overlap() -> None:
    """27 x 27 sums take 46 passes of 16; a buffer that begins within the last of them would double that."""
    build = Builder(8, (27, 27, 64))
    prepared = prepared_launch(tw.compile(build.graph(build.conv(build.input, 64, 1, 1, 0)), "bm1684x", rounding="ort"))
    cycles = prepared.trace.end - prepared.trace.start
    for row, step in enumerate(prepared.program.steps):
        if step.command.operation.name in ("int_add", "fp32_requant"):
            assert cycles[row] == -(-27 * 27 // 16), str(step)
