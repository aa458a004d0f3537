"""All families of random calls, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.targets.bm1684x.random_calls.draw import FLOATS, Call, Draw
from tests.targets.bm1684x.random_calls.elementwise import FAMILIES as ELEMENTWISE
from tests.targets.bm1684x.random_calls.elementwise import Chooser, elementwise, parameters
from tests.targets.bm1684x.random_calls.moves import MOVES
from tests.targets.bm1684x.random_calls.places import PLACES
from tests.targets.bm1684x.random_calls.products import PRODUCTS
from tilewright.targets.bm1684x.capi.sequences import SEQUENCED
from tilewright.targets.bm1684x.values.dtypes import BF16, F32

Maker = Callable[[Draw, str], Call]


def _chosen(choose: Chooser, draw: Draw, name: str) -> Call:
    return elementwise(draw, name, choose(draw, name))


def _sequence(draw: Draw, name: str) -> Call:
    """A function that is a sequence of commands. Its tables hold small random coefficients."""
    typed = any(kind == "data_type_t" for kind, _ in parameters()[name])
    dtype = draw.of(FLOATS) if typed else BF16 if "bf16" in name else F32
    return elementwise(draw, name, {"dtype": dtype, "src_dtype": dtype, "num_iter": 2, "lane": 0})


FAMILIES: dict[str, tuple[list[str], Maker]] = {
    **{name: (functions, partial(_chosen, choose)) for name, (functions, choose) in ELEMENTWISE.items()},
    **PRODUCTS,
    **MOVES,
    **PLACES,
    "sequences": ([f"tpu_bdc_{name}" for name in sorted(SEQUENCED)], _sequence),
}


def calls(family: str, chunk: int, count: int) -> Iterator[Call]:
    """Yield the calls of a chunk of a family. Functions take turns."""
    names, make = FAMILIES[family]
    for number in range(count):
        name = names[(chunk + number) % len(names)]
        yield make(Draw(f"{family} {chunk} {number}"), name)
