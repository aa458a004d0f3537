"""Samples from files and folders, with labels, and images that are prepared as the user or the model's file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright import files
from tilewright.array import Array
from tilewright.errors import InputError, option
from tilewright.files import regular
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Pixels
from tilewright.graph.tensor import Quant, Tensor
from tilewright.model import inputs
from tilewright.model.inputs import IMAGES, Samples

#: Suffixes of the files that are read in a folder.
SUFFIXES = (".npy", ".npz", ".bin", *IMAGES)


def read(
    path: str | Path,
    graph: Graph,
    pixels: Pixels | None = None,
    labels: str | Path | None = None,
    most: int | None = None,
) -> Samples:
    """Return the samples in a file, or in a folder's files in order of name; at most the first `most`.

    `pixels` says how images become inputs [as the model's file says it]. If neither does, the scale of the input must
    tell it. `labels` names the file of the samples' true classes. Raises InputError, naming the file, if there are no
    samples, or if they or the labels do not fit the model.
    """
    path = Path(path)
    pixels = pixels or graph.pixels
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
        if not files:
            raise InputError(path, f"holds no samples ({', '.join(SUFFIXES)})", "give a folder with samples")
    else:
        files = [path]
    parts: list[Samples] = []
    for file in files:
        if most is None or sum(map(count_of, parts)) < most:
            image = file.suffix.lower() in IMAGES and pixels is not None
            parts.append(_image(file, graph, pixels) if image and pixels else inputs.read(file, graph))
    values = {name: np.concatenate([part.values[name] for part in parts])[:most] for name in graph.inputs}
    count = reference.count_of(values)
    told = [part.labels for part in parts if part.labels is not None]
    truth = np.concatenate(told)[:most] if len(told) == len(parts) else None
    if labels is not None:
        truth = _labels(Path(labels), count, most is not None)
    return Samples(values, truth, f"{count} sample{'s' * (count > 1)} from {path}")


def count_of(samples: Samples) -> int:
    return reference.count_of(samples.values)


def names_of(path: str | Path, classes: int | None = None) -> tuple[str, ...]:
    """Return the names of a network's classes: the lines of a text file.

    Raises InputError if the file is not text, or if it has fewer than `classes` lines.
    """
    path = regular(path)
    try:
        names = tuple(line.strip() for line in path.read_text("utf-8").splitlines())
    except ValueError:
        raise InputError(path, "is not UTF-8 text", "give one name per line") from None
    if classes is not None and len(names) < classes:
        raise InputError(path, f"names {len(names)} classes; the network has {classes}", "give one name per line")
    return names


def _image(path: Path, graph: Graph, pixels: Pixels) -> Samples:
    """Read one image of exactly the input's size, and convert its pixels as `pixels` says."""
    target = inputs.only_input(path, graph)
    shape = target.shape
    first = len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3)
    picture = (shape[0], *shape[2:], shape[1]) if first else shape
    raw = Tensor("image", picture, "uint8", Quant((1.0,), (0,)))  # a scale of 1: codes are pixels
    codes = inputs.read(path, Graph("image", {"image": raw}, (), ("image",), ())).values["image"]
    values: Array = codes.astype(np.float32)
    if pixels.bgr:
        values = values[..., ::-1]
    for what, numbers in (("mean", pixels.mean), ("std", pixels.std)):
        if len(numbers) not in (1, picture[-1]):
            where = option(f"--{what}", what)
            raise InputError(where, f"has {len(numbers)} numbers", f"give one, or {picture[-1]}: one per channel")
    values = (values - np.asarray(pixels.mean, np.float32)) / np.asarray(pixels.std, np.float32)
    values = np.moveaxis(values, -1, 2) if first else values
    return Samples({target.name: _typed(path, np.ascontiguousarray(values, np.float32), target)}, None, str(path))


def _typed(path: Path, values: Array, tensor: Tensor) -> Array:
    """Return real values as those of an input: as they are, or as its codes. Raises InputError if it has no scale."""
    if tensor.dtype.startswith("float"):
        return values.astype(tensor.dtype)
    if tensor.quant is None:
        raise InputError(path, f"is an image, but the input is {tensor.dtype} without a scale", "give an .npz of codes")
    limits = np.iinfo(tensor.dtype)
    codes = np.rint(values / np.float32(tensor.scale)) + tensor.zero_point
    return np.clip(codes, limits.min, limits.max).astype(tensor.dtype)


def _labels(path: Path, count: int, cut: bool) -> Array:
    """Read one class number per sample, from .npy or from lines of text. If `cut`, there may be more."""
    path = regular(path)
    try:
        if path.suffix.lower() == ".npy":
            found = files.array(path)
        else:
            found = np.array([int(word) for word in path.read_text("utf-8").split()])
    except ValueError as error:
        raise InputError(path, f"cannot be read as labels: {error}", "give .npy or one number per line") from None
    found = found[:count] if cut and found.ndim == 1 else found
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise InputError(path, f"holds {found.dtype}{list(found.shape)}", f"give {count} integers, one per sample")
    return np.asarray(found)
