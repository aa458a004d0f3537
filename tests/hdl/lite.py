"""The host's side of an AXI4-Lite port named `control`, on a compiled component."""

from __future__ import annotations

from tilewright.hdl.model import Model


def write(model: Model, offset: int, value: int) -> None:
    """Write a word: a cycle for the command, one for the response."""
    model["control__aw__payload"], model["control__w__payload"] = offset, value | 15 << 32
    model["control__aw__valid"] = model["control__w__valid"] = model["control__b__ready"] = 1
    model.step()
    model["control__aw__valid"] = model["control__w__valid"] = 0
    assert model["control__b__valid"]
    model.step()


def read(model: Model, offset: int) -> int:
    model["control__ar__payload"], model["control__ar__valid"], model["control__r__ready"] = offset, 1, 1
    model.step()
    model["control__ar__valid"] = 0
    assert model["control__r__valid"]
    value = model["control__r__payload"]
    model.step()
    return value
