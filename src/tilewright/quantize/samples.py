"""The options of quantisation, its samples, and the task of a scheme: a model with samples and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.array import Array
from tilewright.errors import InputError, one_of, option
from tilewright.graph.ir import Graph, Pixels
from tilewright.model import inputs
from tilewright.model.inputs import IMAGES, Samples
from tilewright.model.shapes import Shapes

if TYPE_CHECKING:
    from onnx import ModelProto

#: Called with (steps done, steps in total, description of the steps).
Progress = Callable[[int, int, str], None]
#: For each scheme, the options that not all schemes have.
ACCEPTS = {
    "affine": ("method", "activations"),
    "symmetric": ("method",),
    "tflm": ("method",),
    "pow2": ("residuals",),
}
SCHEMES = tuple(ACCEPTS)
#: The values to which `pow2` adds residuals: unrounded sums, or rounded codes.
RESIDUALS = ("sums", "rounded")


@dataclass(frozen=True)
class Options:
    """Options of quantisation. ACCEPTS lists the schemes with `method`, `activations` and `residuals`.

    `shapes` maps the names of inputs with open extents to their shapes; `until` names values that replace the outputs.
    """

    scheme: str = "affine"
    method: str = "minmax"
    activations: str = "int8"
    pixels: Pixels | None = None
    residuals: str = "sums"
    shapes: Shapes = field(default_factory=dict)
    until: tuple[str, ...] = ()

    def check(self) -> None:
        """Check the scheme and its options. Raises InputError if the scheme is unknown or does not have an option."""
        if self.scheme not in ACCEPTS:
            reason = f"there is no scheme '{self.scheme}'"
            raise InputError(option("--scheme"), reason, one_of(self.scheme, ACCEPTS))
        accepts = ACCEPTS[self.scheme]
        others = [name for name in ("method", "activations") if name not in accepts]
        if any(getattr(self, name) != getattr(Options, name) for name in others):
            if others == ["activations"]:
                reason = f"is for the scheme affine only: {self.scheme} has int8"
                raise InputError(option("--activations"), reason, "leave it out")
            where = option("--method and --activations", "method and activations")
            raise InputError(where, f"are not for the scheme {self.scheme}", "leave them out")
        if self.residuals not in (RESIDUALS if "residuals" in accepts else (Options.residuals,)):
            reason = f"'{self.residuals}' is not for the scheme {self.scheme}"
            raise InputError(option("--residuals"), reason, "leave it out")


@dataclass(frozen=True, eq=False)
class Task:
    """A prepared float model, the samples for the choice of its scales, and the options of quantisation.

    Nodes that read or write a tensor in `unbounded`, which contains NaN or infinity, stay in float32.
    """

    model: ModelProto
    samples: Samples
    options: Options = field(default_factory=Options)
    progress: Progress | None = None
    unbounded: frozenset[str] = frozenset()


def read(path: str | Path, graph: Graph, pixels: Pixels | None = None, labels: str | Path | None = None) -> Samples:
    """Return the samples in a file, or in a folder's files sorted by name.

    Raises InputError, naming the file, if there are no samples, if the samples do not fit the model, or if there are
    images without a conversion in `pixels`.
    """
    path = Path(path)
    files = path.iterdir() if path.is_dir() else [path]
    if pixels is None and (images := sorted(file for file in files if file.suffix.lower() in IMAGES)):
        how = option("say with --mean, --std and --bgr how", "say with `Options(pixels=Pixels(mean, std, bgr))` how")
        raise InputError(images[0], "is an image", f"{how} the model's pixels are prepared")
    return inputs.read(path, graph, pixels, labels)


def feeds(
    given: Samples, progress: Progress | None = None, what: str = "", part: int = 0, parts: int = 1
) -> Iterator[dict[str, Array]]:
    """Yield {input name: array} for each sample, and report `progress` of pass `part` of `parts`."""
    for index in range(given.count):
        yield {name: array[index, ...] for name, array in given.values.items()}
        if progress:
            progress(part * given.count + index + 1, parts * given.count, what)
