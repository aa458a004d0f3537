"""Samples from files: exact codes, images by the model's quantisation, one clear error for the rest."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.model import inputs, load

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load(DIGITS / "digits.tflite")


def graph(shape: tuple[int, ...] = (1, 4, 6, 3), quant: Quant | None = None, dtype: str = "int8", n: int = 1) -> Graph:
    """A network of inputs alone, which is all that reading samples looks at."""
    names = tuple(f"in{index}" for index in range(n))
    return Graph("g", {name: Tensor(name, shape, dtype, quant) for name in names}, (), names, ())


def only(samples: inputs.Samples) -> Array:
    (array,) = samples.values.values()
    return array


def test_npz_gives_samples_and_labels(digits: Graph) -> None:
    read = inputs.read(DIGITS / "samples.npz", digits)
    assert only(read).shape == (100, 1, 8, 8, 1)
    assert read.labels is not None
    assert read.labels.tolist() == [index % 10 for index in range(100)]
    assert read.source.startswith("100 samples from ")


@pytest.mark.parametrize("digit", range(10))
def test_an_image_is_the_sample_it_was_drawn_from(digits: Graph, digit: int) -> None:
    golden = only(inputs.read(DIGITS / "samples.npz", digits))[digit]
    assert np.array_equal(only(inputs.read(DIGITS / "images" / f"{digit}.png", digits))[0], golden)


@pytest.mark.parametrize("name", ["a.npy", "one.npy", "a.bin", "a.npz", "named.npz"])
def test_each_format_of_codes_gives_the_same(digits: Graph, tmp_path: Path, name: str) -> None:
    codes = only(inputs.read(DIGITS / "samples.npz", digits))[:3]
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, codes.reshape(3, 8, 8, 1))
    elif name == "one.npy":
        np.save(path, codes[0, 0])
        codes = codes[:1]
    elif name == "a.bin":
        path.write_bytes(codes.tobytes())
    else:
        arrays: dict[str, Any] = {"x" if name == "a.npz" else digits.inputs[0]: codes}
        np.savez(path, **arrays)
    assert np.array_equal(only(inputs.read(path, digits)), codes)


def test_several_inputs_come_by_name(tmp_path: Path) -> None:
    two = graph(n=2)
    codes = np.arange(72, dtype=np.int8).reshape(1, 4, 6, 3)
    np.savez(tmp_path / "a.npz", in0=codes, in1=codes + 1)
    assert set(inputs.read(tmp_path / "a.npz", two).values) == {"in0", "in1"}
    np.savez(tmp_path / "b.npz", in0=codes, other=codes)
    with pytest.raises(InputError, match="its arrays are: in0, other"):
        inputs.read(tmp_path / "b.npz", two)
    (tmp_path / "c.bin").write_bytes(bytes(72))
    with pytest.raises(InputError, match="one input; this one has 2"):
        inputs.read(tmp_path / "c.bin", two)


@pytest.mark.parametrize(
    ("scale", "zero_point", "dtype"), [(1 / 255, -128, "int8"), (1.0, -128, "int8"), (1 / 255, 0, "uint8")]
)
def test_pixels_become_codes_where_the_scale_says_how(
    tmp_path: Path, scale: float, zero_point: int, dtype: str
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (4, 6, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    quant = Quant((float(np.float32(scale)),), (zero_point,))
    codes = only(inputs.read(tmp_path / "a.png", graph(quant=quant, dtype=dtype)))
    assert np.array_equal(codes[0, 0].astype(int), pixels.astype(int) + zero_point)


@pytest.mark.parametrize(
    ("quant", "dtype"),
    [(Quant((0.0078125,), (0,)), "int8"), (Quant((1 / 255,), (0,)), "int8"), (None, "int8"), (None, "float32")],
)
def test_pixels_of_unknown_preprocessing_are_refused(tmp_path: Path, quant: Quant | None, dtype: str) -> None:
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"does not tell how the model's pixels were prepared.*npz of codes"):
        inputs.read(tmp_path / "a.png", graph(quant=quant, dtype=dtype))


@pytest.mark.parametrize(
    ("mode", "size", "said"),
    [("RGB", (4, 6), "is 4x6 pixels but the model takes 6x4"), ("RGBA", (6, 4), "mode RGBA"), ("I;16", (6, 4), "I;16")],
)
def test_images_that_do_not_fit_are_refused(tmp_path: Path, mode: str, size: tuple[int, int], said: str) -> None:
    Image.new(mode, size).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=said):
        inputs.read(tmp_path / "a.png", graph(quant=Quant((1.0,), (-128,))))


def test_channels_may_come_first(tmp_path: Path) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    codes = only(inputs.read(tmp_path / "a.png", graph((1, 3, 4, 6), Quant((1.0,), (0,)), "uint8")))
    assert np.array_equal(codes[0, 0], pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("unit", [1 / 255, 1.0])
def test_real_inputs_by_the_codes_that_are_made_of_them(tmp_path: Path, unit: float) -> None:
    pixels = np.random.default_rng(6).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    x = Tensor("x", (1, 3, 4, 6), "float32")
    codes = Tensor("codes", x.shape, "uint8", Quant((float(np.float32(unit)),), (0,)))
    node = Node("q", ops.Quantize(), ("x",), ("codes",))
    real = only(inputs.read(tmp_path / "a.png", Graph("g", {"x": x, "codes": codes}, (node,), ("x",), ("codes",))))
    assert real.dtype == np.float32
    np.testing.assert_allclose(real[0, 0], pixels.transpose(2, 0, 1) * unit, rtol=1e-6)


def test_an_image_needs_an_image_input(tmp_path: Path) -> None:
    Image.new("L", (6, 4)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"the model's input is \[1, 24\]"):
        inputs.read(tmp_path / "a.png", graph((1, 24)))


def test_floats_are_not_quantised_silently(digits: Graph, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((8, 8, 1), np.float32))
    with pytest.raises(InputError, match="is float32; give int8 values"):
        inputs.read(tmp_path / "a.npy", digits)


def test_labels_must_be_one_a_sample(digits: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((2, 8, 8, 1), np.int8), labels=np.zeros(3, int))
    with pytest.raises(InputError, match=r"`labels` is int64\[3\]; give one integer per sample, 2 in total"):
        inputs.read(tmp_path / "a.npz", digits)


BOMB = (
    np.lib.format.magic(1, 0) + b"\x76\x00" + b"{'descr': '|i1', 'fortran_order': False, 'shape': (1099511627776,), }"
)


@pytest.mark.parametrize("suffix", ["npy", "npz", "bin", "png", "txt"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"\x93NUMPY", b"PK\x03\x04", BOMB.ljust(127) + b"\n\0"])
def test_damaged_files_are_one_error(digits: Graph, tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\."):
        inputs.read(path, digits)
    if suffix == "npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inputs.npy", content)
        with pytest.raises(InputError):
            inputs.read(path, digits)


def test_python_objects_are_never_unpickled(digits: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.array([{}], object))
    with pytest.raises(InputError, match="is no array of plain values"):
        inputs.read(tmp_path / "a.npz", digits)


def test_random_codes_cover_the_type_and_repeat() -> None:
    big = graph((1, 64, 64, 3))
    codes = only(inputs.random(big))
    assert (codes.min(), codes.max(), codes.shape) == (-128, 127, (1, 1, 64, 64, 3))
    assert np.array_equal(codes, only(inputs.random(big)))
    assert only(inputs.random(graph(dtype="float32"))).dtype == np.float32
