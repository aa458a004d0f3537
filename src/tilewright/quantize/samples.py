"""The options of quantisation, and its samples: files, folders, or images that are prepared as the user says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.files import regular
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.model import inputs
from tilewright.model.inputs import IMAGES, Samples
from tilewright.model.shapes import Shapes

#: Called with (steps done, steps in total, description of the steps).
Progress = Callable[[int, int, str], None]
SCHEMES = ("affine", "tflm", "pow2")
#: Where `pow2` adds residuals: to unrounded sums, or to rounded codes.
RESIDUALS = ("sums", "rounded")
SUFFIXES = (".npy", ".npz", *IMAGES)


@dataclass(frozen=True)
class Options:
    """Options of quantisation.

    `method` is for `affine` and `tflm`, `activations` for `affine` only, `residuals` for `pow2` only. `shapes` are
    those of inputs whose extents the model leaves open, by name.
    """

    scheme: str = "affine"
    method: str = "minmax"
    activations: str = "int8"
    pixels: Pixels | None = None
    residuals: str = "sums"
    shapes: Shapes = field(default_factory=dict)


@dataclass(frozen=True)
class Pixels:
    """The conversion of pixels 0..255 to model inputs: `(pixel - mean) / std`, for R, G, B (if `bgr`: B, G, R)."""

    mean: tuple[float, ...]
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False


def read(path: str | Path, graph: Graph, pixels: Pixels | None = None, labels: str | Path | None = None) -> Samples:
    """Return the samples in a file, or in a folder's files in order of name.

    Raises InputError, naming the file, if there are no samples or they do not fit the model.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
        if not files:
            raise InputError(path, f"holds no samples ({', '.join(SUFFIXES)})", "give calibration data")
    else:
        files = [path]
    parts = [
        _image(file, graph, pixels) if file.suffix.lower() in IMAGES else inputs.read(file, graph) for file in files
    ]
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in graph.inputs}
    count = len(next(iter(values.values())))
    told = [part.labels for part in parts if part.labels is not None]
    truth = np.concatenate(told) if len(told) == len(parts) else None
    if labels is not None:
        truth = _labels(Path(labels), count)
    return Samples(values, truth, f"{count} sample{'s' * (count > 1)} from {path}")


def feeds(
    samples: Samples, progress: Progress | None = None, what: str = "", part: int = 0, parts: int = 1
) -> Iterator[dict[str, Array]]:
    """Yield {input name: array} for each sample, and call `progress` after it, as in pass `part` of `parts` passes."""
    count = count_of(samples)
    for index in range(count):
        yield {name: array[index] for name, array in samples.values.items()}
        if progress:
            progress(part * count + index + 1, parts * count, what)


def count_of(samples: Samples) -> int:
    return len(next(iter(samples.values.values())))


def _image(path: Path, graph: Graph, pixels: Pixels | None) -> Samples:
    """Read one image of exactly the input's size, and convert its pixels as `pixels` says."""
    if pixels is None:
        raise InputError(path, "is an image", "say with --mean, --std and --bgr how the model's pixels are prepared")
    shape = inputs.only_input(path, graph).shape
    first = len(shape) == 4 and shape[1] in (1, 3)
    picture = (shape[0], *shape[2:], shape[1]) if first else shape
    raw = Tensor("image", picture, "uint8", Quant((1.0,), (0,)))  # a scale of 1: codes are pixels
    codes = inputs.read(path, Graph("image", {"image": raw}, (), ("image",), ())).values["image"]
    values: Array = codes.astype(np.float32)
    if pixels.bgr:
        values = values[..., ::-1]
    for what, numbers in (("mean", pixels.mean), ("std", pixels.std)):
        if len(numbers) not in (1, picture[-1]):
            raise InputError(f"--{what}", f"has {len(numbers)} numbers", f"give one, or {picture[-1]}: one per channel")
    values = (values - np.asarray(pixels.mean, np.float32)) / np.asarray(pixels.std, np.float32)
    values = np.moveaxis(values, -1, 2) if first else values
    return Samples({graph.inputs[0]: np.ascontiguousarray(values, np.float32)}, None, str(path))


def _labels(path: Path, count: int) -> Array:
    """Read one class number per sample, from .npy or from lines of text."""
    path = regular(path)
    try:
        if path.suffix.lower() == ".npy":
            found = np.load(path, allow_pickle=False)
        else:
            found = np.array([int(word) for word in path.read_text().split()])
    except (ValueError, EOFError) as error:
        raise InputError(path, f"cannot be read as labels: {error}", "give .npy or one number per line") from None
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise InputError(path, f"holds {found.dtype}{list(found.shape)}", f"give {count} integers, one per sample")
    return found
