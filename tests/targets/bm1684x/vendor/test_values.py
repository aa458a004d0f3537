"""Random calls of the device API write the same bytes as the vendor's model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.bm1684x.vendor.cases import FLOATS, TYPES, elementwise
from tests.targets.bm1684x.vendor.compare import difference, running, vendor
from tests.targets.bm1684x.vendor.library import prototypes
from tilewright.array import Array
from tilewright.targets.bm1684x.capi.sequences import SEQUENCED
from tilewright.targets.bm1684x.values.dtypes import BF16, F32, DType
from tilewright.targets.bm1684x.values.floats import narrow

SEED, COUNT = 4, 4


def table(dtype: DType) -> Array:
    """Return coefficients of a series, other ones than the machine's."""
    return narrow(np.random.default_rng(SEED).standard_normal(32).astype(np.float32), dtype)


def types_of(name: str) -> tuple[DType, ...]:
    if any(kind == "data_type_t" for kind, _ in prototypes()[f"tpu_bdc_{name}"]):
        return FLOATS
    return (BF16,) if name.startswith("bf16") else (F32,)


@pytest.mark.vendor
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SEQUENCED))
def test_sequences_write_the_same_bytes(name: str) -> None:
    kinds = prototypes()[f"tpu_bdc_{name}"]
    tables = {word: table for kind, word in kinds if kind == "local_addr_t" and ("coeff" in word or "table" in word)}
    fixed = {"num_iter": 2} if any(word == "num_iter" for _, word in kinds) else {}
    cases = list(elementwise(f"tpu_bdc_{name}", SEED, COUNT, types_of(name), tables=tables, fixed=fixed))
    tpu = running()
    for case, expected in zip(cases, vendor(cases), strict=True):
        assert not difference(case, expected, tpu), f"seed {SEED}: {case.name}{case.arguments}"


@pytest.mark.vendor
@pytest.mark.slow
def test_absolute_values_keep_subnormals() -> None:
    cases = list(elementwise("tpu_bdc_abs", SEED, 20, TYPES))
    tpu = running()
    for case, expected in zip(cases, vendor(cases), strict=True):
        assert not difference(case, expected, tpu), f"seed {SEED}: {case.arguments}"
