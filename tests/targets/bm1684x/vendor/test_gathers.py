"""Random gathers, scatters and selections in local memory write the same bytes as the vendor's model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.targets.bm1684x.vendor.cases import TYPES, laid, numbers
from tests.targets.bm1684x.vendor.compare import Case, difference, running, vendor
from tests.targets.bm1684x.vendor.library import prototypes
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.capi.gathers import GATHERS
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import U8, U16

SEED, COUNT = 7, 8
#: Where the operands are, with a lane each for start lanes other than 0.
PLACES = {"output_addr": 0x10000, "dst_addr": 0x10000, "param_addr": 0x20000, "table_addr": 0x20000, "index_addr": 0x0}
PLACES |= {"src_addr": 0, "mask_addr": 0, "count_addr": 0x38000}
LANE = 0x40000
#: Bytes of each lane that hold indices: the most that a case reads.
USED = 0x1000


def cases(name: str) -> Iterator[Case]:
    """Yield random calls. Local memory holds noise, so the indices are written all over their banks."""
    kinds = prototypes()[name]
    for case in range(COUNT):
        chosen, values = random.Random(f"{name} {SEED} {case}"), np.random.default_rng([SEED, case])
        given: dict[str, Any] = {word: chosen.choice(TYPES) for kind, word in kinds if kind == "data_type_t"}
        if chosen.random() < 0.8:
            given |= {
                word: chosen.choice((U8, U16)) for word in given if word in ("index_dtype", "src_dtype", "mask_dtype")
            }
        dtype, index = (
            given["dst_dtype" if "lookup" in name else "dtype"],
            given.get("index_dtype", given.get("src_dtype", U16)),
        )
        table, rows = "lookup" in name, "_h_" in name or "hw" in name
        n = 1 if "4bank" in name and chosen.random() < 0.8 else chosen.randint(1, 3)
        h = chosen.randint(1, 5) if rows or table or chosen.random() < 0.1 else 1
        shape = dim4(n, chosen.choice([1, 3, 40, 64, 65, 130]), h, chosen.randint(1, 40))
        sizes = {
            "param_h": chosen.randint(1, 12),
            "param_w": chosen.randint(1, 30),
            "len": chosen.choice([20, 256, 300]),
        }
        lane = chosen.choice([0, 0, 0, 5]) * LANE
        for kind, word in kinds:
            if kind == "local_addr_t":
                given[word] = PLACES[word] + (0 if word == "table_addr" and chosen.random() < 0.9 else lane)
            elif word == "shape":
                given[word] = shape
            elif kind == "scalar_t":
                given[word] = Constant(int(values.integers(0, 1 << dtype.bits)), dtype)
            elif kind == "bool":
                given[word] = chosen.random() < 0.5
            elif word in sizes:
                given[word] = sizes[word]
        limits = [(sizes["param_h"] if "_h_" in name else sizes["len"] if table else sizes["param_w"])]
        if "scatter" in name:
            limits = [h if "_h_" in name else shape.w]
        if "hw" in name:
            limits.append(h if "scatter" in name else sizes["param_h"])
        high = index.high if chosen.random() < 0.1 else min(limits) - 1
        drawn = values.integers(0, min(high, index.high) + 1, (64, USED // index.bytes)).astype(index.storage)
        if ("exception" in name and "_h_" not in name) or chosen.random() < 0.1:
            drawn.view(f"<u{index.bytes}")[values.random(drawn.shape) < 0.1] = (1 << index.bits) - 1
        writes = [] if "mask" in name else [(word * LANE, drawn[word]) for word in range(64)]
        if "mask" in name:
            mask = numbers(values, given["mask_dtype"], shape.shape)
            mask = np.where(values.random(mask.shape) < 0.5, 0, mask)
            writes = list(laid(given["mask_addr"], shape, None, given["mask_dtype"], mask))
        if "4bank" in name:
            copy = values.integers(0, 256, (64, USED), np.uint8)
            writes += [(word * LANE + 0x20000 + k * 0x8000, copy[word]) for word in range(64) for k in range(4)]
        yield Case(name, tuple(given[word] for _, word in kinds), tuple(writes), U8)


@pytest.mark.vendor
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GATHERS))
def test_gathers_write_the_same_bytes(name: str) -> None:
    calls, tpu = list(cases(f"tpu_bdc_{name}")), running()
    for case, expected in zip(calls, vendor(calls), strict=True):
        assert not difference(case, expected, tpu), f"seed {SEED}: {case.name}{case.arguments}"
