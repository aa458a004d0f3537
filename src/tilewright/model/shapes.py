"""The shapes of a model's inputs: those in the file, with the user's in place of extents that the file leaves open.

An open batch axis is 1, because Tilewright has an axis of its own for samples. The batch axis is axis 0, and every axis
with the same symbol as an open axis 0, or with a symbol in BATCH. The user gives all other open extents; a symbol that
gets an extent in one input has it in all inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.errors import InputError, UnsupportedError, one_of, option, printable
from tilewright.graph.tensor import MAX_ELEMENTS

#: The shape of each input, by name.
Shapes = Mapping[str, tuple[int, ...]]
MAX_RANK = 8
#: Symbols that exporters give to the batch axis, in lower case.
BATCH = ("batch", "batch_size", "batchsize", "n", "bs")


@dataclass(frozen=True)
class Declared:
    """An input as its file declares it: an extent is a number, or a symbol ("": an open extent without a name).

    `axes` is None if the file does not declare the rank.
    """

    name: str
    axes: tuple[int | str, ...] | None

    def spelt(self, shape: Iterable[object]) -> str:
        """Return the option that gives this input a shape."""
        text = ",".join(map(str, shape))
        return option(f"--shape {self.name}={text}", f'shapes={{"{self.name}": ({text})}}')


def declared(value: object) -> Declared:
    """Return the input that a ValueInfoProto declares. Its name is not checked."""
    tensor = value.type.tensor_type  # type: ignore[attr-defined]
    axes = None
    if tensor.HasField("shape"):
        axes = tuple(int(dim.dim_value) if dim.dim_value > 0 else _symbol(dim.dim_param) for dim in tensor.shape.dim)
    return Declared(str(value.name), axes)  # type: ignore[attr-defined]


def _symbol(text: str) -> str:
    """Return the name of an extent; "" for a text without letters, such as "?", which names no extent."""
    return printable(text[:40]) if any(letter.isalpha() for letter in text) else ""


def fixed(inputs: Iterable[Declared], given: Shapes | None = None) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input, with the shapes that the user has `given`.

    Raises InputError if a given shape names no input or does not fit its declaration, and UnsupportedError if an extent
    stays open.
    """
    known, given = {each.name: each for each in inputs}, given or {}
    symbols: dict[str, int] = {}
    for name, shape in given.items():
        where = option("--shape", "shapes")
        if name not in known:
            raise InputError(where, f"the model has no input '{name}'", one_of(name, known))
        _check(known[name], shape, where)
        for extent, axis in zip(shape, known[name].axes or (), strict=False):
            if isinstance(axis, str) and axis and symbols.setdefault(axis, extent) != extent:
                reason = f"gives '{axis}' the extents {symbols[axis]} and {extent}"
                raise InputError(f"{where} {name}", reason, "give one extent to all axes of that name")
    for each in known.values():
        for place, axis in enumerate(each.axes or ()):
            if isinstance(axis, str) and axis and (place == 0 or axis.lower() in BATCH):
                symbols.setdefault(axis, 1)
    return {name: given[name] if name in given else _closed(each, symbols) for name, each in known.items()}


def _check(known: Declared, shape: tuple[int, ...], where: str) -> None:
    """Check a given shape. Raises InputError if it is too large, or contradicts what the file declares."""
    where = f"{where} {known.name}"
    if len(shape) > MAX_RANK or not all(1 <= extent <= MAX_ELEMENTS for extent in shape):
        raise InputError(where, f"is {list(shape)[:MAX_RANK]}", f"give at most {MAX_RANK} extents of 1 or more")
    if known.axes is None:
        return
    fits = len(shape) == len(known.axes) and all(
        isinstance(axis, str) or axis == extent for axis, extent in zip(known.axes, shape, strict=True)
    )
    if not fits:
        wanted = ",".join(str(axis) or "?" for axis in known.axes)
        raise InputError(where, f"is {list(shape)}, but the model declares [{wanted}]", "give numbers for the names")


def _closed(known: Declared, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an input. Raises UnsupportedError if an extent has no number."""
    where = f"input '{known.name}'"
    if known.axes is None:
        raise UnsupportedError(where, "has no shape in the file", f"give one: {known.spelt(['1', '...'])}")
    shape: list[int | str] = [symbols.get(axis, axis) if isinstance(axis, str) else axis for axis in known.axes]
    if shape and shape[0] == "":
        shape[0] = 1
    still = [axis for axis, extent in enumerate(shape) if isinstance(extent, str)]
    if still:
        name = f"'{shape[still[0]]}'" if shape[still[0]] else "of no name"
        example = known.spelt((extent or "?") if isinstance(extent, str) else extent for extent in shape)
        remedy = f"give numbers for them: {example}" if len(still) > 1 else f"give a number for it: {example}"
        raise UnsupportedError(where, f"has the open extent {name} at axis {still[0]}", remedy)
    if len(shape) > MAX_RANK or not all(1 <= int(extent) <= MAX_ELEMENTS for extent in shape):
        raise UnsupportedError(where, f"has the shape {shape[:MAX_RANK]}", f"at most {MAX_RANK} axes are supported")
    return tuple(map(int, shape))
