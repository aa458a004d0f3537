"""What a schedule is made of: one item for each instruction, or for the few that a transfer takes."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.schedule import Range
from tilewright.targets.vta.compiler.plan import Chunk, Group
from tilewright.targets.vta.compiler.step import Run


class LoadInputs(NamedTuple):
    """The input tiles of a chunk, into an input slot."""

    slot: int
    group: Group
    chunk: Chunk


class LoadParameters(NamedTuple):
    """The parameters of some output channel tiles, into a parameter slot."""

    slot: int
    outs: Range


class LoadWeights(NamedTuple):
    """Some tiles of a weight chunk (see Plan.weight_chunks), into a weight slot."""

    slot: int
    chunk: int
    tiles: Range


class Compute(NamedTuple):
    """Steps on accumulator slot `acc`; `inp`, `wgt` and `par` are slots, -1 where the steps do not read them."""

    run: Run
    acc: int
    inp: int = -1
    wgt: int = -1
    par: int = -1


class Store(NamedTuple):
    """The lowest byte of each of a group's outputs, as byte plane `plane`."""

    acc: int
    group: Group
    plane: int


Item = LoadInputs | LoadWeights | LoadParameters | Compute | Store
