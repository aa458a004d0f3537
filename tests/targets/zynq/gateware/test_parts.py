"""Parts of the engine: the requantiser against graph/rounding.py, and the compute unit's pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.graph.rounding import Requant
from tilewright.hdl.model import Compiled
from tilewright.targets.zynq.config import LANES
from tilewright.targets.zynq.gateware.results import LATENCY, Requantiser
from tilewright.targets.zynq.gateware.unit import FILL, ComputeUnit
from tilewright.targets.zynq.isa.layer import RULES

pytestmark = pytest.mark.gxx
COUNT = 4000


def factors(rng: np.random.Generator, rule: str) -> Array:
    """Usual and extreme factors: zero, powers of two, and those that round up to one."""
    values = np.where(rng.random(COUNT) < 0.5, 10 ** rng.uniform(-6, 1, COUNT), 2 ** rng.uniform(-40, 29.9, COUNT))
    values = np.where(rng.random(COUNT) < 0.2, 2.0 ** rng.integers(-40, 29, COUNT), values)
    values[:4] = 0, np.nextafter(2.0**5, 0), np.nextafter(2.0**30, 0), 2.0**-1040
    if rule == "pow2":
        return 2.0 ** rng.integers(-45, 29, COUNT)
    return values.astype(np.float32).astype(np.float64) if rule == "float" else values


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_sums_become_the_codes_of_the_rule(rule: str, seed: int) -> None:
    print("seed", seed)
    rng, model = np.random.default_rng([seed, RULES.index(rule)]), Compiled(Requantiser()).model()
    low, high = (-128, 127) if seed % 2 else (0, 255)
    zero, relu = int(rng.integers(low, high)), seed // 2
    low = min(zero, high) if relu else low
    factor = factors(rng, rule)
    near = (np.round(rng.uniform(-300, 300, COUNT) * 2) / 2 + rng.choice([0, 1e-7], COUNT)) / np.maximum(factor, 1e-9)
    wide = rng.integers(-(2**31), 2**31, COUNT)
    sums = np.where(rng.random(COUNT) < 0.7, near, wide).clip(-(2**31), 2**31 - 1).astype(np.int32)
    fields = {"rule": RULES.index(rule), "relu": relu, "zy": zero & 511, "low": low & 511, "high": high & 511}
    for name, value in fields.items():
        model[name] = value
    extra = np.zeros(LATENCY, np.int64)
    given = {"sum": np.append(sums.view(np.uint32), extra), "factor": np.append(factor.view(np.uint64), extra)}
    # Recorded after each cycle: the code of a sum is there LATENCY - 1 rows later.
    codes = model.play(given, "result")[LATENCY - 1 :][:COUNT, 0]
    requant = Requant(factor, factor.astype(np.float32), zero, low, high, "int64")
    expected = requant.apply(np.maximum(sums, 0)[None] if relu else sums[None], RULES[RULES.index(rule)])[0]
    np.testing.assert_array_equal(codes, expected & 255)


def test_the_sum_follows_the_last_lane_by_one_cycle_and_the_first_by_eight() -> None:
    rng, model = np.random.default_rng(1), Compiled(ComputeUnit()).model()
    for _ in range(20):
        data, weight = rng.integers(-512, 512, (2, LANES))
        model["fill"] = 1
        model.play({"lane": np.arange(LANES), "data": data & 1023, "weight": weight & 1023})
        model["fill"], model["take"] = 0, 1
        model.step()
        assert signed(model["sum"]) == int(data @ weight)
        model["take"] = 0
        model.play({"lane": np.arange(LANES), "data": data, "weight": weight})
        assert signed(model["sum"]) == int(data @ weight)  # it stays until it is taken again
    model["clear"] = 1
    model.step()
    assert model["sum"] == 0
    model["clear"], model["take"], model["fill"], model["lane"], model["data"] = 0, 1, 1, 0, 5
    before = int(data @ weight - data[0] * weight[0])
    model["weight"] = 3
    model.step()
    model["fill"] = 0
    model.step(FILL - 1)
    assert signed(model["sum"]) == int(data @ weight)
    model.step()
    assert signed(model["sum"]) == before + 15


def signed(value: int) -> int:
    return value - (value >> 27 << 28)
