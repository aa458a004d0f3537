"""Operations on pairs of vectors write the same bytes as the vendor's model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.targets.bm1684x.vendor.cases import FLOATS, INTEGERS, TYPES
from tests.targets.bm1684x.vendor.compare import Case, difference, running, vendor
from tests.targets.bm1684x.vendor.library import prototypes
from tilewright.targets.bm1684x.capi.elementwise import VECTORS
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import F32, DType

SEED, COUNT = 1, 8
PLACES = {"dst_addr": 0x20000, "src0_addr": 0, "src1_addr": 0x8000}


def cases(name: str) -> Iterator[Case]:
    """Yield random calls. The vectors are the noise that both memories hold."""
    kinds = prototypes()[name]
    integer = "int" in name or name.endswith(("and", "or", "xor"))
    types = FLOATS if "fp_" in name else INTEGERS if integer else TYPES
    for index in range(COUNT):
        chosen, bits = random.Random(f"{name} {SEED} {index}"), np.random.default_rng([SEED, index])
        given: dict[str, DType] = {word: chosen.choice(types) for kind, word in kinds if kind == "data_type_t"}
        result = given.get("dst_dtype", given.get("dtype", F32))
        arguments: dict[str, Any] = {}
        for kind, word in kinds:
            if kind == "local_addr_t":
                arguments[word] = PLACES[word]
            elif kind == "data_type_t":
                arguments[word] = given[word]
            elif kind == "scalar_t":
                arguments[word] = Constant(int(bits.integers(0, 1 << result.bits)), result)
            elif word.endswith("per_channel"):
                arguments[word] = chosen.randint(1, 9)
            elif word.endswith("len"):
                arguments[word] = chosen.randint(1, 60)
            else:
                arguments[word] = chosen.random() < 0.5
        yield Case(name, tuple(arguments[word] for _, word in kinds), (), result)


@pytest.mark.vendor
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(VECTORS))
def test_pairs_write_the_same_bytes(name: str) -> None:
    calls, tpu = list(cases(f"tpu_bdc_{name}")), running()
    for case, expected in zip(calls, vendor(calls), strict=True):
        assert not difference(case, expected, tpu), f"seed {SEED}: {case.name}{case.arguments}"
