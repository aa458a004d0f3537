"""Input samples from files and folders: exact codes (.npy, .npz, .bin), or images whose preprocessing is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright import files
from tilewright.array import Array
from tilewright.errors import InputError, in_file, option
from tilewright.files import MAX_BYTES, regular
from tilewright.graph.ir import Graph, Pixels
from tilewright.graph.ops import Quantize
from tilewright.graph.reference import check_inputs, count_of
from tilewright.graph.tensor import Tensor

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
#: The suffixes of sample files in a folder; other files are ignored.
SUFFIXES = (".npy", ".npz", ".bin", *IMAGES)
SAMPLES = "inputs"
LABELS = "labels"


@dataclass(frozen=True, eq=False)
class Samples:
    """S samples for a network: `values` has an array (S, *shape) for each input name.

    `labels` (S,) are the true classes of the samples; None if the file has no labels. `source` is the origin of the
    samples, as text for reports.
    """

    values: Mapping[str, Array]
    labels: Array | None
    source: str

    def __repr__(self) -> str:
        return f"<Samples: {self.source}>"

    @property
    def count(self) -> int:
        return count_of(self.values)

    @property
    def classes(self) -> tuple[int, ...] | None:
        return None if self.labels is None else tuple(self.labels.tolist())


def random(graph: Graph, seed: int = 0, count: int = 1) -> Samples:
    """Return `count` random samples: any code, reals of 0..1, wide integers of 0 or 1. The seed determines them."""
    generator = np.random.default_rng(seed)
    values = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        kind = np.dtype(tensor.dtype)
        shape = (count, *tensor.shape)
        if kind.kind == "f":
            values[name] = generator.random(shape).astype(kind)
        else:
            codes = kind.itemsize < 4 and kind.kind != "b"  # wider integers may be indices, so only 0 and 1 are safe
            low, high = (np.iinfo(kind).min, np.iinfo(kind).max) if codes else (0, 1)
            values[name] = generator.integers(low, high, shape, np.int64, endpoint=True).astype(kind)
    give = option("give real ones with -i", "`tilewright.model.inputs.read` reads real ones")
    return Samples(values, None, f"{count} sample{'s' * (count > 1)} of random codes (seed {seed}); {give}")


def read(
    path: str | Path,
    graph: Graph,
    pixels: Pixels | None = None,
    labels: str | Path | None = None,
    most: int | None = None,
) -> Samples:
    """Return the samples in a file, or in a folder's files sorted by name; at most the first `most` samples.

    The suffix of a file selects its format. `pixels` is the conversion of images to inputs [default: derived from the
    input's scale]. `labels` is the path of a file with the true class of each sample. Raises InputError, naming the
    file, if there are no samples, or if the samples or labels do not fit the model.
    """
    path, paths = Path(path), [Path(path)]
    if path.is_dir():
        paths = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
        if not paths:
            raise InputError(path, f"holds no samples ({', '.join(SUFFIXES)})", "give a folder with samples")
    parts: list[Samples] = []
    for file in paths:
        if most is None or sum(part.count for part in parts) < most:
            parts.append(_read(file, graph, pixels))
    values = {name: np.concatenate([part.values[name] for part in parts])[:most] for name in graph.inputs}
    count = count_of(values)
    label_parts = [part.labels for part in parts if part.labels is not None]
    # Labels in files are used only if every file has labels.
    truth = np.concatenate(label_parts)[:most] if len(label_parts) == len(parts) else None
    if labels is not None:
        truth = _labels(Path(labels), count, most is not None)
    return Samples(values, truth, f"{count} sample{'s' * (count > 1)} from {path}")


def names_of(path: str | Path) -> tuple[str, ...]:
    """Return the names of a network's classes: the lines of a file. Raises InputError if the file is not text."""
    path = regular(path)
    try:
        return tuple(line.strip() for line in path.read_text("utf-8").splitlines())
    except ValueError:
        raise InputError(path, "is not UTF-8 text", "give one name per line") from None


def _labels(path: Path, count: int, cut: bool) -> Array:
    """Read one class number per sample, from .npy or from lines of text. With `cut`, additional numbers are ignored."""
    path = regular(path)
    try:
        if path.suffix.lower() == ".npy":
            numbers = files.array(path)
        else:
            numbers = np.array([int(word) for word in path.read_text("utf-8").split()])
    except ValueError as error:
        raise InputError(path, f"cannot be read as labels: {error}", "give .npy or one number per line") from None
    numbers = numbers[:count] if cut and numbers.ndim == 1 else numbers
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise InputError(path, f"holds {numbers.dtype}{list(numbers.shape)}", f"give {count} integers, one per sample")
    return numbers


def _read(path: Path, graph: Graph, pixels: Pixels | None) -> Samples:
    path = regular(path)
    if path.stat().st_size > MAX_BYTES:
        raise InputError(path, f"is larger than {MAX_BYTES >> 30} GiB", "split the samples over several files")
    suffix = path.suffix.lower()
    labels = None
    values: Array | Mapping[str, Array]
    if suffix == ".npz":
        values, labels = _npz(path, graph)
    elif suffix == ".npy":
        values = files.array(path)
    elif suffix == ".bin":
        values = _raw(path, only_input(path, graph))
    elif suffix in IMAGES:
        values = _image(path, only_input(path, graph), graph, pixels)
    else:
        raise InputError(path, f"has the unknown suffix '{path.suffix}'", "give .npy, .npz, .bin (codes) or an image")
    with in_file(path):
        checked = check_inputs(graph, values)
    count = count_of(checked)
    if labels is not None and (labels.shape != (count,) or labels.dtype.kind not in "iu"):
        reason = f"`labels` is {labels.dtype}{list(labels.shape)}"
        raise InputError(path, reason, f"give one integer per sample, {count} in total")
    return Samples(checked, labels, str(path))


def only_input(path: Path, graph: Graph) -> Tensor:
    """Return the input tensor of a network with one input. Raises InputError if the network has more inputs."""
    if len(graph.inputs) != 1:
        reason = f"fits only a model with one input; this one has {len(graph.inputs)}"
        raise InputError(path, reason, "give an .npz with one array per input")
    return graph.tensors[graph.inputs[0]]


def _npz(path: Path, graph: Graph) -> tuple[Array | Mapping[str, Array], Array | None]:
    # The samples are the arrays with the names of the network's inputs. If these are missing, the samples are the array
    # `inputs`, or the only array in the file. Other arrays are not read.
    selected: list[str] = []

    def choose(names: list[str]) -> list[str]:
        candidates = [name for name in names if name != LABELS or name in graph.inputs]
        if set(graph.inputs) <= set(names):
            selected.extend(graph.inputs)
        elif SAMPLES in names or len(candidates) == 1:
            selected.append(SAMPLES if SAMPLES in names else candidates[0])
        else:
            reason = f"has no array for each input of the model; its arrays are: {', '.join(names) or 'none'}"
            remedy = f"name the arrays {', '.join(graph.inputs)}, or a single array `inputs`"
            raise InputError(path, reason, remedy)
        return [*selected, *({LABELS} & set(names) - set(selected))]

    arrays = files.arrays(path, chosen=choose)
    labels = None if LABELS in selected else arrays.get(LABELS)
    if set(selected) != set(graph.inputs):
        return arrays[selected[0]], labels
    return {name: arrays[name] for name in selected}, labels


def _raw(path: Path, tensor: Tensor) -> Array:
    """Return the samples of a .bin file: consecutive little-endian arrays of the type and shape of input `tensor`."""
    size = path.stat().st_size
    if not size or size % tensor.nbytes:
        sample = f"one sample is {tensor.nbytes} bytes ({tensor.dtype}{list(tensor.shape)})"
        raise InputError(path, f"has {size} bytes", f"{sample}; give a whole number of samples")
    kind = np.dtype(tensor.dtype)
    return np.fromfile(path, kind.newbyteorder("<")).astype(kind).reshape(-1, *tensor.shape)


def _image(path: Path, tensor: Tensor, graph: Graph, preparation: Pixels | None) -> Array:
    """Return an 8-bit image of exactly the input's size as a sample (codes or reals) in the input's layout."""
    from PIL import Image, UnidentifiedImageError

    shape = tensor.shape
    # The channel axis has extent 1 or 3. If two axes qualify, the last axis is used.
    first = len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3)
    if len(shape) != 4 or shape[0] != 1 or (shape[3] not in (1, 3) and not first):
        raise InputError(path, f"is an image, but the model's input is {list(tensor.shape)}", "give an .npz of codes")
    height, width, channels = (shape[2], shape[3], shape[1]) if first else shape[1:]
    try:
        with Image.open(path) as image:
            if image.size != (width, height):
                actual = f"{image.size[0]}x{image.size[1]}"
                raise InputError(path, f"is {actual} pixels but the model takes {width}x{height}", "resize it first")
            if image.mode not in ("1", "L", "P", "RGB"):
                raise InputError(path, f"has the image mode {image.mode}", "give 8-bit RGB or grey, not transparent")
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(height, width, channels)
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, OSError, ValueError) as error:
        raise InputError(path, f"cannot be read as an image: {error}") from None
    values = (
        _scaled(path, tensor, graph, pixels) if preparation is None else _prepared(path, tensor, pixels, preparation)
    )
    return values.transpose(2, 0, 1) if first else values


def _prepared(path: Path, tensor: Tensor, image: Array, pixels: Pixels) -> Array:
    """Convert an image (H, W, C) by `pixels` to reals or codes. Raises InputError if this does not fit the input."""
    for what, numbers in (("mean", pixels.mean), ("std", pixels.std)):
        if len(numbers) not in (1, image.shape[-1]):
            reason = f"has {len(numbers)} numbers"
            remedy = f"give one, or {image.shape[-1]}: one per channel"
            raise InputError(option(f"--{what}", what), reason, remedy)
    values: Array = image.astype(np.float32)[..., :: -1 if pixels.bgr else 1]
    values = (values - np.asarray(pixels.mean, np.float32)) / np.asarray(pixels.std, np.float32)
    if tensor.dtype.startswith("float"):
        return values.astype(tensor.dtype)
    if tensor.quant is None:
        raise InputError(path, f"is an image, but the input is {tensor.dtype} without a scale", "give an .npz of codes")
    limits = np.iinfo(tensor.dtype)
    codes = np.rint(values / np.float32(tensor.scale)) + tensor.zero_point
    return np.clip(codes, limits.min, limits.max).astype(tensor.dtype)


def _scaled(path: Path, given: Tensor, graph: Graph, pixels: Array) -> Array:
    """Convert pixels to values of the input `given`. The scale of the codes shows which real number is white.

    The scale must be 1 (reals of 0..255) or 1/255 (0..1), else the function raises InputError.
    """
    quantised = (
        site.output for site in graph.sites() if isinstance(site.node.op, Quantize) and site.inputs[0] is given
    )
    # If the input is float and a Quantize node reads it, use the scale of that node's codes.
    tensor = next(quantised, given) if given.dtype == "float32" else given
    if tensor.quant and np.dtype(tensor.dtype).kind in "iu":
        limits = np.iinfo(tensor.dtype)
        every_pixel_fits = limits.min <= tensor.zero_point and tensor.zero_point + 255 <= limits.max
        for unit in (1 / 255, 1.0):
            if abs(tensor.scale / unit - 1) < 0.01 and every_pixel_fits:
                if given is not tensor:
                    return (pixels * unit).astype(given.dtype)
                codes = np.rint(pixels * (unit / tensor.scale)) + tensor.zero_point
                return np.clip(codes, limits.min, limits.max).astype(tensor.dtype)
    how = f"scale {tensor.scale:.6g}, zero point {tensor.zero_point}" if tensor.quant else f"{tensor.dtype}, no scale"
    reason = f"the input ({how}) does not tell how the model's pixels were prepared"
    raise InputError(path, reason, "prepare the image yourself and give an .npz of codes")
