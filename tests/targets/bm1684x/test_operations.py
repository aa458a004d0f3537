"""Operations as a table: what is refused and why, and that nothing else is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import InputError, MachineError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.conformance.calls import CALLS, call_of
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS, Values
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F32, I16, U8, dtype_of, rounding_of
from tilewright.targets.bm1684x.values.memory import Memories
from tilewright.targets.bm1684x.values.window import Window

CONFIG = Config(lanes=4)


@pytest.mark.parametrize(
    ("operation", "types", "attributes", "reason"),
    [
        ("cast", {"x": "f16", "y": "bf16"}, {}, "go through f32"),
        ("cast", {"x": "i8", "y": "i16"}, {"mode": "half_up"}, "for integer shifts only"),
        ("fp_div", {"a": "f16", "b": "f16", "y": "f16"}, {}, "f32 only, not in f16"),
        ("int_sub", {"a": "u8", "b": "u8", "y": "u16"}, {}, "difference is signed"),
        ("int_add", {"a": "u8", "b": "i8", "y": "u8"}, {}, "b is signed; it must be signed"),
        ("int_mul", {"a": "u8", "b": "u8", "y": "i8"}, {}, "no source is; it must be unsigned"),
        ("int8_mm", {"L": "i8", "R": "i8", "bias": "i16", "y": "i8"}, {"relu": True}, "ReLU is unsigned"),
        ("int_requant", {"x": "i8", "y": "i8"}, {}, "x is i8; it must be i16, i32, u16"),
        ("greater_select", {"a": "f32", "b": "f32", "c": "i8", "d": "i8", "y": "i8"}, {}, "select 32 bits or more"),
        ("less_select", {"a": "f16", "b": "f16", "c": "i8", "d": "i8", "y": "i8"}, {}, "select 16 bits or more"),
        ("fp_add", {"a": "f16", "b": "f32", "y": "f32"}, {}, "the same float type, not f16, f32"),
        ("fp_conv2d", {"x": "f16", "w": "f16", "acc": "f16", "y": "f16"}, {}, "accumulated result must be f32"),
        ("int_add", {"a": "i8", "b": "i8", "y": "i8"}, {}, ""),
        ("int8_mm", {"L": "i8", "R": "i8", "bias": "i16", "y": "u8"}, {"relu": True}, ""),
        ("cast", {"x": "f32", "y": "bf16"}, {"mode": "down"}, ""),
    ],
)
def test_refusals_say_why(operation: str, types: dict[str, str], attributes: dict[str, object], reason: str) -> None:
    named = {key: rounding_of(str(value)) if key == "mode" else value for key, value in attributes.items()}
    said = OPERATIONS[operation].refusal({name: dtype_of(type_name) for name, type_name in types.items()}, named)
    assert reason in said if reason else not said


def test_refused_commands_do_not_run() -> None:
    a = Tensor.local(0, 0, (1, 4, 1, 4), F32, CONFIG)
    y = Tensor.local(0, 0, (1, 4, 1, 4), U8, CONFIG)
    command = Command(OPERATIONS["greater_select"], {"a": a, "b": a, "c": y, "d": y}, {"y": y})
    with pytest.raises(MachineError, match="select 32 bits or more"):
        command.run(Memories(CONFIG))


def test_operands_that_are_missing_or_do_not_fit_are_named() -> None:
    a = Tensor.local(0, 0, (1, 4, 1, 4), F32, CONFIG)
    with pytest.raises(MachineError, match="fp_add: operand b is missing"):
        Command(OPERATIONS["fp_add"], {"a": a}, {"y": a}).run(Memories(CONFIG))
    small = a.with_shape(1, 4, 1, 3)
    with pytest.raises(MachineError, match="do not fit"):
        Command(OPERATIONS["fp_add"], {"a": a, "b": small}, {"y": a}).run(Memories(CONFIG))


def test_a_constant_stands_for_a_tensor() -> None:
    memories = Memories(CONFIG)
    a = Tensor.local(3, 64, (2, 6, 3, 5), I16, CONFIG)
    values = np.arange(180, dtype=np.int16).reshape(a.shape)
    memories.write(a.addresses, values)
    y = Tensor.local(3, 4096, (2, 6, 3, 5), I16, CONFIG, "compact")
    Command(OPERATIONS["max"], {"a": a, "b": Constant(100, I16)}, {"y": y}).run(memories)
    np.testing.assert_array_equal(memories.read(y.addresses, I16.storage), np.maximum(values, 100))
    assert y.addresses.min() >= LOCAL_BASE


def test_calls_are_operations() -> None:
    assert all(call.operation in OPERATIONS for call in CALLS.values())
    with pytest.raises(InputError, match="no call 'fp_fly'"):
        call_of("fp_fly")


def test_gathers_sorts_and_lookups() -> None:
    """Of what no vector holds: the device API's description, and what is chosen where it says nothing."""
    x = np.array([[[[1, 2], [3, 4], [5, 6]]]], np.uint8)
    index = np.array([2, 9, 0], np.uint32).reshape(1, 1, 3, 1)
    seven = np.array(7, np.uint8)
    gathered = meaning("dma_h_gather", {"x": x, "index": index, "fill": seven}, shape=(1, 1, 3, 2))["y"]
    assert gathered[0, 0].tolist() == [[5, 6], [7, 7], [1, 2]]
    before = np.full((1, 1, 3, 2), 9, np.uint8)
    scattered = meaning("dma_h_scatter", {"x": x, "index": index, "y_before": before})["y"]
    assert scattered[0, 0].tolist() == [[5, 6], [9, 9], [1, 2]]
    looked = meaning("table_lookup", {"x": np.array([0, 2, 3], np.uint8), "table": x[0, 0, :, 0], "fill": seven})["y"]
    assert looked.tolist() == [1, 5, 7]
    keys = np.array([2, 1, 2, 3], np.int32)
    numbers = np.array([10, 11, 12, 13], np.int32)
    top = meaning("hau_sort", {"x": keys, "numbers": numbers}, {"descending": True}, (3,))
    assert (top["y"].tolist(), top["index"].tolist()) == ([3, 2, 2], [13, 10, 12])
    flipped = meaning("dma_reverse", {"x": x}, {"axis": 2})["y"]
    assert flipped[0, 0, :, 0].tolist() == [5, 3, 1]


def meaning(
    name: str, data: dict[str, Array], attributes: dict[str, object] | None = None, shape: tuple[int, ...] = ()
) -> Mapping[str, Array]:
    """An operation on arrays alone."""
    types = {operand: next(t for t in DTYPES.values() if t.storage == values.dtype) for operand, values in data.items()}
    operation = OPERATIONS[name]
    types |= dict.fromkeys(operation.outputs, types["x"])
    return operation.results(Values(data, types, dict.fromkeys(operation.outputs, shape), attributes or {}))


@pytest.mark.parametrize(
    "sizes", [{"kernel": (0, 1)}, {"stride": (1, 0)}, {"dilation": (0, 1)}, {"pads": (0, -1, 0, 0)}]
)
def test_windows_without_a_size_are_refused(sizes: dict[str, tuple[int, ...]]) -> None:
    """A command of a program or a call in C may have them."""
    with pytest.raises(MachineError, match="must be 1 or more"):
        Window(**{"kernel": (1, 1), **sizes})  # type: ignore[arg-type]
