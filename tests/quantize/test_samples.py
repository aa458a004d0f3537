"""Calibration data from files, folders and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tilewright.errors import InputError
from tilewright.graph.ir import Graph, Pixels, Tensor
from tilewright.quantize import samples


def graph(*shape: int) -> Graph:
    return Graph("g", {"x": Tensor("x", shape, "float32")}, (), ("x",), ())


PIXELS = np.random.default_rng(3).integers(0, 256, (4, 6, 3), np.uint8)


@pytest.mark.parametrize("bgr", [False, True])
@pytest.mark.parametrize("first", [True, False])
def test_an_image_is_prepared_as_asked(tmp_path: Path, first: bool, bgr: bool) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    mean, std = (104.0, 117.0, 123.0), (2.0,)
    read = samples.read(tmp_path / "a.png", graph(1, 3, 4, 6) if first else graph(1, 4, 6, 3), Pixels(mean, std, bgr))
    ordered = PIXELS[..., ::-1] if bgr else PIXELS
    expected = (ordered.astype(np.float32) - np.array(mean, np.float32)) / np.float32(2)
    expected = expected.transpose(2, 0, 1) if first else expected
    assert np.array_equal(read.values["x"], expected[None, None])
    assert read.values["x"].dtype == np.float32


def test_a_folder_is_read_in_order_of_name(tmp_path: Path) -> None:
    for name, value in (("b.npy", 2), ("a.npy", 1), ("c.npy", 3)):
        np.save(tmp_path / name, np.full((5,), value, np.float32))
    (tmp_path / "notes.txt").write_text("not a sample")
    read = samples.read(tmp_path, graph(1, 5))
    assert read.values["x"][:, 0, 0].tolist() == [1, 2, 3]
    assert read.count == 3
    assert [feed["x"].shape for feed in samples.feeds(read)] == [(1, 5)] * 3
    assert read.source == f"3 samples from {tmp_path}"


def test_labels_of_a_file_or_beside_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((2, 5), np.float32), labels=np.array([3, 4]))
    one = samples.read(tmp_path / "a.npz", graph(1, 5))
    assert one.labels is not None
    assert one.labels.tolist() == [3, 4]
    np.save(tmp_path / "l.npy", np.array([7, 8]))
    two = samples.read(tmp_path / "a.npz", graph(1, 5), labels=tmp_path / "l.npy")
    assert two.labels is not None
    assert two.labels.tolist() == [7, 8]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a.png: is an image; say with `Options\(pixels=Pixels"):
        samples.read(tmp_path, graph(1, 3, 4, 6))
    with pytest.raises(InputError, match="is 6x4 pixels but the model takes 4x6"):
        samples.read(tmp_path, graph(1, 3, 6, 4), Pixels((0.0,)))
    with pytest.raises(InputError, match="mean: has 2 numbers; give one, or 3"):
        samples.read(tmp_path, graph(1, 3, 4, 6), Pixels((1.0, 2.0)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no samples"):
        samples.read(tmp_path / "empty", graph(1, 5))
    np.save(tmp_path / "x.npy", np.zeros((2, 5)))
    with pytest.raises(InputError, match=r"is float64; give float32"):
        samples.read(tmp_path / "x.npy", graph(1, 5))
    np.save(tmp_path / "x.npy", np.zeros((2, 5), np.float32))
    (tmp_path / "labels").write_text("1 2 3")
    with pytest.raises(InputError, match=r"int64\[3\]; give 2 integers, one per sample"):
        samples.read(tmp_path / "x.npy", graph(1, 5), labels=tmp_path / "labels")
    (tmp_path / "labels").write_text("cat dog")
    with pytest.raises(InputError, match="cannot be read as labels"):
        samples.read(tmp_path / "x.npy", graph(1, 5), labels=tmp_path / "labels")
