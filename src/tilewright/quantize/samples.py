"""The options of quantisation, its samples, and its task: a model with samples and options."""

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

#: A callback(finished steps, all steps, description of the steps).
Progress = Callable[[int, int, str], None]
#: {scheme: its options}. Options that all schemes have are not listed.
ACCEPTS = {
    "affine": ("method", "activations"),
    "symmetric": ("method",),
    "tflm": ("method",),
    "pow2": ("residuals",),
}
SCHEMES = tuple(ACCEPTS)
#: `pow2` adds residuals to unrounded sums or to rounded codes.
RESIDUALS = ("sums", "rounded")


@dataclass(frozen=True)
class Options:
    """Options of quantisation. Not all schemes have `method`, `activations` and `residuals` (see ACCEPTS).

    `shapes` maps inputs with open extents to their shapes. `until` names values that become the outputs.
    """

    scheme: str = "affine"
    method: str = "minmax"
    activations: str = "int8"
    pixels: Pixels | None = None
    residuals: str = "sums"
    shapes: Shapes = field(default_factory=dict)
    until: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InputError if the scheme is unknown, or if it does not have an option that was changed."""
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
    """A prepared float model, the calibration samples, and the options of quantisation.

    The tensors in `unbounded` contain NaN or infinity. Nodes that read or write such a tensor stay in float32.
    """

    model: ModelProto
    samples: Samples
    options: Options = field(default_factory=Options)
    progress: Progress | None = None
    unbounded: frozenset[str] = frozenset()


def read(path: str | Path, graph: Graph, pixels: Pixels | None = None, labels: str | Path | None = None) -> Samples:
    """Return the samples in a file, or in the files of a folder in the order of their names.

    Raises InputError, naming the file, if there are no samples, if the samples do not fit the model, or if images are
    given without `pixels`.
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
    """Yield {input name: array} for each sample. Report the progress of pass number `part` of `parts` passes."""
    for index in range(given.count):
        yield {name: array[index, ...] for name, array in given.values.items()}
        if progress:
            progress(part * given.count + index + 1, parts * given.count, what)
