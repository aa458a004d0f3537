"""The options of quantisation, and its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.array import Array
from tilewright.errors import InputError, option
from tilewright.graph.ir import Graph, Pixels
from tilewright.model import samples
from tilewright.model.inputs import IMAGES, Samples
from tilewright.model.samples import count_of
from tilewright.model.shapes import Shapes

#: Called with (steps done, steps in total, description of the steps).
Progress = Callable[[int, int, str], None]
SCHEMES = ("affine", "symmetric", "tflm", "pow2")
#: Where `pow2` adds residuals: to unrounded sums, or to rounded codes.
RESIDUALS = ("sums", "rounded")


@dataclass(frozen=True)
class Options:
    """Options of quantisation.

    `method` is not for `pow2`, `activations` for `affine` only, `residuals` for `pow2` only. `shapes` are
    those of inputs whose extents the model leaves open, by name; `until` are values that replace the outputs.
    """

    scheme: str = "affine"
    method: str = "minmax"
    activations: str = "int8"
    pixels: Pixels | None = None
    residuals: str = "sums"
    shapes: Shapes = field(default_factory=dict)
    until: tuple[str, ...] = ()


def read(path: str | Path, graph: Graph, pixels: Pixels | None = None, labels: str | Path | None = None) -> Samples:
    """Return the samples in a file, or in a folder's files in order of name.

    Raises InputError, naming the file, if there are no samples, if they do not fit the model, or if there are images
    and `pixels` does not say how they become inputs.
    """
    found = Path(path)
    files = found.iterdir() if found.is_dir() else [found]
    if pixels is None and (images := sorted(file for file in files if file.suffix.lower() in IMAGES)):
        how = option("say with --mean, --std and --bgr how", "say with `Options(pixels=Pixels(mean, std, bgr))` how")
        raise InputError(images[0], "is an image", f"{how} the model's pixels are prepared")
    return samples.read(found, graph, pixels, labels)


def feeds(
    given: Samples, progress: Progress | None = None, what: str = "", part: int = 0, parts: int = 1
) -> Iterator[dict[str, Array]]:
    """Yield {input name: array} for each sample, and call `progress` after it, as in pass `part` of `parts` passes."""
    count = count_of(given)
    for index in range(count):
        yield {name: array[index, ...] for name, array in given.values.items()}
        if progress:
            progress(part * count + index + 1, parts * count, what)
