"""Random products of integers, with zero points per channel or a number as a factor, against the vendor's model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.targets.bm1684x.vendor.cases import INTEGERS
from tests.targets.bm1684x.vendor.compare import Case, difference, running, vendor
from tests.targets.bm1684x.vendor.library import prototypes
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, DType, Rounding

SEED, COUNT = 5, 10
PLACES = {"output_addr": 0x20000, "left_addr": 0, "right_addr": 0x10000}
NAMES = (
    *(f"int8_pc_zp_mm{kind}_all_trans" for kind in ("", "_L_const", "_R_const")),
    *(f"int_mm{kind}" for kind in ("", "_L_trans", "_L_const")),
)


def types(chosen: random.Random, name: str) -> dict[str, DType]:
    """Return the types of the operands, a tenth of them at random."""
    if chosen.random() < 0.1:
        return dict.fromkeys(
            ("left_dtype", "C_dtype", "right_dtype", "right_zp_dtype", "C_zp_dtype"), chosen.choice(INTEGERS)
        )
    pair = [chosen.choice((I8, U8)) for _ in range(2)]
    if name.startswith("tpu_bdc_int_"):
        bits = chosen.choice((8, 16, 32, 32))
        pair = [dtype for dtype in INTEGERS if dtype.bits == bits]
        chosen.shuffle(pair)
    chosen_types = {"left_dtype": pair[0], "C_dtype": pair[0], "right_dtype": pair[1], "right_zp_dtype": pair[1]}
    if "R_const" in name:
        chosen_types |= {"C_dtype": pair[1], "C_zp_dtype": pair[1]}
    signs = any(dtype.signed for dtype in pair)
    bias = chosen.choice((I16, U16))
    result = (I8, I16) if signs or bias is I16 else (U8, U16)
    return {**chosen_types, "bias_dtype": bias, "output_dtype": chosen.choice(result)}


def cases(name: str) -> Iterator[Case]:
    """Yield random calls. The factors are the noise that both memories hold."""
    kinds = prototypes()[name]
    for index in range(COUNT):
        chosen, bits = random.Random(f"{name} {SEED} {index}"), np.random.default_rng([SEED, index])
        given: dict[str, Any] = types(chosen, name)
        for kind, word in kinds:
            if kind == "local_addr_t":
                given[word] = PLACES.get(word, 0x38000)
            elif kind == "scalar_t":
                dtype = given["C_zp_dtype" if "R_const" in name else "C_dtype"]
                given[word] = Constant(int(bits.integers(0, 1 << dtype.bits)), dtype)
            elif kind == "float":
                given[word] = float(np.float32(chosen.uniform(-3, 3)))
            elif kind == "rounding_mode_t":
                given[word] = chosen.choice(list(Rounding))
            elif kind == "bool":
                given[word] = word not in ("result_add", "result_relu") and chosen.random() < 0.5
                if word == "result_add" and "pc_zp" in name:
                    given[word] = chosen.random() < 0.5
            elif "per_channel" in word:
                given[word] = chosen.randint(1, 9)
            elif "shift" in word:
                given[word] = chosen.randint(0, 12) if kind != "char" else chosen.randint(-40, 12)
            elif word not in given:
                given[word] = chosen.choice([1, 5, 20, 64, 70])
        result = F32 if name.startswith("tpu_bdc_fp32") else given["output_dtype"] if "int8_mm" in name else I32
        yield Case(name, tuple(given[word] for _, word in kinds), (), result)


@pytest.mark.vendor
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_products_write_the_same_bytes(name: str) -> None:
    calls, tpu = list(cases(f"tpu_bdc_{name}")), running()
    for case, expected in zip(calls, vendor(calls), strict=True):
        assert not difference(case, expected, tpu), f"seed {SEED}: {case.name}{case.arguments}"
