"""Loops that cannot run are refused with a reason, and loops that may disturb each other are found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.targets.gemmini.loops import convolutions, products
from tests.targets.gemmini.loops.machine import BASE, FENCE, bits, config_execute, executed_in
from tests.targets.gemmini.loops.products import Commands, loop
from tests.targets.gemmini.timing.replay import merged
from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.work import EX, LD
from tilewright.targets.gemmini.loops import Expansion, expand

CONFIG = Config()
STRIDES = dict.fromkeys("abcd", 64)


def expanded(commands: Commands, config: Config = CONFIG) -> Expansion:
    return expand(np.array(commands, np.uint64), config)


def small(
    i: int = 1, j: int = 1, k: int = 1, pads: tuple[int, int, int] = (0, 0, 0), rs1: int = 0, rs2: int = 0, **at: int
) -> Commands:
    addresses = {name: BASE + 0x10000 * place for place, name in enumerate("abc", 1)} | at
    return loop(i, j, k, pads, addresses, STRIDES, rs1, rs2)


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        (small(i=0), "i is 0"),
        (small(k=0), "k is 0"),
        (small(pads=(0, 16, 0)), "pad_j is 16"),
        (small(i=8, j=8, k=33), "A and B take 8448 rows; half of the scratchpad has 8192"),
        (small(i=9, j=8), "C takes 1152 rows from row 0 on; the accumulator has 1024"),
        ([*small(c=BASE), *small(i=6, j=6)], "C takes 576 rows from row 512 on"),
        (small(rs1=bits((3, 18))), "a_spad is 3"),
        (small(rs2=bits((1, 0), (1, 1))), "transpose_a together with transpose_b"),
        (small(rs2=bits((1, 2)), d=BASE), "a residual addition with a transposed B or with D"),
        (small(rs1=bits((2, 8))), "activation 2 needs a normaliser"),
        (small(rs1=bits((5, 8))), "activation is 5"),
        (small()[1:], "no loop_ws_bounds came before"),
        ([*small(), *small()[1:]], "no loop_ws_bounds came before"),
    ],
)
def test_an_illegal_product_is_refused(commands: Commands, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason) as error:
        expanded(commands)
    assert error.value.where == f"command {len(commands) - 1} (LOOP_WS)"
    assert error.value.remedy


def test_a_normaliser_takes_its_activations() -> None:
    commands = small(i=2, j=5, pads=(3, 2, 0), rs1=bits((2, 8)))
    expansion = expanded(commands, Config(normaliser=1))
    stores = expansion.prims[expansion.loops.starts[0, 0] : expansion.loops.starts[0, 1]]
    rows = 2 * 16 - 3
    assert (stores[:, 0] == 0).sum() == 3 * rows, "three passes over each row, each with a config_norm"
    assert (stores[:, 0] == 3).sum() == 3 * rows * 2, "of two stores: 4 blocks and 1 block"
    norm = (stores[stores[:, 0] == 3, 2] >> np.uint64(26)) & np.uint64(7)
    assert norm[:16].tolist() == [1, 2, 1, 2, 3, 4, 3, 4, 0, 0, 0, 0, 1, 2, 1, 2]


@pytest.fixture
def tile() -> Commands:
    config = Config.read("dim8", {})
    return convolutions.convolution(np.random.default_rng(3), config, "pooled").commands


@pytest.mark.parametrize(
    ("funct", "word", "low", "value", "reason"),
    [
        (17, 2, 48, 0, "batches is 0"),
        (16, 2, 48, 0, "conv_stride is 0"),
        (19, 1, 0, 0, "kernel_dilation is 0"),
        (17, 2, 0, 4000, "rows; half of the"),
        (18, 2, 32, 60, "the borders"),
        (15, 1, 8, 9, "max_pixels is 9"),
        (15, 1, 16, 3, "b_spad is 3"),
        (17, 1, 16, 5, "pool_size is 5; a pooled store takes at most 3"),
    ],
)
def test_an_illegal_convolution_is_refused(
    tile: Commands, funct: int, word: int, low: int, value: int, reason: str
) -> None:
    wide = 8 if (funct, low) in ((16, 48), (15, 8)) else 10 if funct == 19 else 2 if low == 16 and funct == 15 else 16
    broken = [list(command) for command in tile]
    for command in broken:
        if command[0] == funct:
            command[word] = command[word] & ~(((1 << wide) - 1) << low) | value << low
        if command[0] == 20:
            command[2] = command[2] or BASE  # every loop stores, so that its pooling matters
    with pytest.raises(ProgramError, match=reason):
        expanded([(a, b, c) for a, b, c in broken], Config.read("dim8", {}))


def overtakes(expansion: Expansion, order: Array) -> bool:
    """Return whether a load of the second loop is taken before an execute command of the first one."""
    source = expansion.source[order]
    first, second = np.unique(source[expansion.unroller[order] > 0])[:2]
    execute = np.flatnonzero((source == first) & (expansion.kind[order] == EX))
    load = np.flatnonzero((source == second) & (expansion.kind[order] == LD))
    return bool(load[0] < execute[-1])


@pytest.mark.parametrize(
    ("second", "space"),
    [
        (small(4, 4, 4, rs1=bits((1, 18))), "spad"),  # A in the half that holds A
        (small(4, 4, 4, c=0), ""),  # halves alternate
        (small(4, 4, 4, rs1=bits((1, 16)), a=0), "spad"),
    ],
)
@pytest.mark.parametrize("delay", [20, 60])
def test_a_half_that_is_still_in_use_is_found(second: Commands, space: str, delay: int) -> None:
    commands = [config_execute(), *small(4, 4, 4), *second]
    expansion = expanded(commands)
    assert {finding.space for finding in expansion.findings} == ({space} if space else set())
    assert all(finding.steps == (6, 12) for finding in expansion.findings)
    assert overtakes(expansion, merged(expansion, CONFIG, delay))
    for between in (FENCE, config_execute()):
        separate = expanded([*commands[:7], between, *commands[7:]])
        assert not separate.findings
        assert not overtakes(separate, merged(separate, CONFIG, delay))


def test_d_may_not_replace_sums_of_the_loop_before() -> None:
    commands = [config_execute(), *small(4, 4, 2, c=0), *small(4, 4, 2, d=BASE)]
    (finding,) = expanded(commands).findings
    assert (finding.space, finding.low, finding.high) == ("acc", 0, 256)


def test_a_residual_addition_beside_a_product_is_found() -> None:
    commands = [config_execute(), *small(4, 4, 4), *small(4, 4, rs2=bits((1, 2)))]
    (finding,) = expanded(commands).findings
    assert "residual" in finding.message
    assert not expanded([*commands[:7], FENCE, *commands[7:]]).findings


MAKERS: dict[str, Callable[[np.random.Generator, Config], products.Case]] = {
    "product": products.product,
    "residual": products.residual,
    "convolution": lambda rng, config: convolutions.convolution(rng, config, "pooled"),
    "dilated": lambda rng, config: convolutions.convolution(rng, config, "dilated"),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("seed", range(3))
def test_values_do_not_depend_on_when_commands_are_done(maker: str, seed: int) -> None:
    config = Config.read("dim4", {})
    case = MAKERS[maker](np.random.default_rng(seed), config)
    expansion = expanded(case.commands, config)
    assert not expansion.findings
    for delay in (1, 7, 60):
        order = merged(expansion, config, delay)
        assert sorted(order.tolist()) == list(range(len(order)))
        assert not case.wrong(executed_in(expansion.prims[order], config, case.dram)), f"seed {seed}, delay {delay}"


def test_a_result_larger_than_a_half_runs_alone() -> None:
    """[R: gemmini_sizes, dim32__loopresadd_01] Only a loop whose result is in the same rows may disturb it."""
    large = [config_execute(), *small(6, 6)]
    assert not expanded(large).findings
    for second in (small(1, 1), small(1, 1, rs2=bits((1, 2)))):
        findings = expanded([*large, *second]).findings
        assert ("acc", 512, 528) in {(finding.space, finding.low, finding.high) for finding in findings}
        assert not expanded([*large, FENCE, *second]).findings
