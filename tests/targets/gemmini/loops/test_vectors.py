"""Expanded loops consist of the primitive commands that the RTL's unrollers issued."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.gemmini.vectors import LOOPS, names, parted, program, runs
from tilewright.array import Array
from tilewright.targets.gemmini.loops import expand


def streams(prims: Array) -> dict[str, Array]:
    """Return the commands of each kind in their order; config commands of different queues may overtake each other."""
    funct, rs1 = prims[:, 0], prims[:, 1]
    kinds = {"mvin": funct == 2, "mvin2": funct == 1, "mvin3": funct == 14, "mvout": funct == 3}
    kinds["execute"] = (funct >= 4) & (funct <= 6)
    kinds |= {f"config {kind}": (funct == 0) & (rs1 & np.uint64(3) == kind) for kind in (0, 2)}
    kinds |= {f"config load {state}": (funct == 0) & (rs1 & np.uint64(27) == 1 + 8 * state) for state in range(3)}
    return {kind: prims[mask] for kind, mask in kinds.items()}


@pytest.mark.golden
@pytest.mark.parametrize("name", parted(names(*LOOPS, config="default")))
def test_the_streams_are_those_of_the_rtl(name: str) -> None:
    arrays, _ = program(name)
    for run in runs(arrays):
        assert run.prims is not None
        expansion = expand(arrays["cmds"], run.config)
        for commands in (expansion.prims, expansion.prims[expansion.order]):
            issued, recorded = streams(commands), streams(run.prims)
            assert sum(map(len, issued.values())) == sum(map(len, recorded.values())) == len(run.prims)
            for kind, expected in recorded.items():
                np.testing.assert_array_equal(issued[kind], expected, err_msg=f"{run.build}: {kind}")


@pytest.mark.golden
@pytest.mark.parametrize("name", parted(names(*LOOPS)))
def test_an_expansion_names_the_command_of_each_primitive(name: str) -> None:
    arrays, config = program(name)
    expansion = expand(arrays["cmds"], config)
    assert sorted(expansion.order.tolist()) == list(range(len(expansion.prims)))
    functs = arrays["cmds"][expansion.source, 0]
    np.testing.assert_array_equal(np.isin(functs, (8, 15)), expansion.unroller > 0)
    is_primitive = expansion.entry >= 0
    np.testing.assert_array_equal(expansion.source[expansion.entry[is_primitive]], np.flatnonzero(is_primitive))
    np.testing.assert_array_equal(expansion.prims[expansion.entry[is_primitive]], arrays["cmds"][is_primitive])
    assert (np.diff(expansion.source[expansion.order]) >= 0).all(), "canonical order is program order"
