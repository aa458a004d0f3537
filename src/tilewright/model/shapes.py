"""The user's choices for an ONNX model: the shapes of its inputs, and values that replace its outputs.

The file may leave extents of inputs open. The user gives these extents; only an open batch axis is 1 by default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import InputError, UnsupportedError, one_of, option, printable
from tilewright.graph.ort import package
from tilewright.graph.tensor import MAX_ELEMENTS

#: The shape of each input, by name.
Shapes = Mapping[str, tuple[int, ...]]
MAX_RANK = 8
#: The symbols, in lower case, that exporters use for the batch axis.
BATCH = ("batch", "batch_size", "batchsize", "n", "bs")
#: The largest number of names that an error lists.
MOST = 20


@dataclass(frozen=True)
class InputDeclaration:
    """The declaration of an input in the file. An extent is a number or a symbol ("": open, without a name).

    `axes` is None if the file does not declare the rank.
    """

    name: str
    axes: tuple[int | str, ...] | None

    def shape_option(self, shape: Iterable[object]) -> str:
        text = ",".join(map(str, shape))
        return option(f"--shape {self.name}={text}", f'shapes={{"{self.name}": ({text})}}')


def declared(value: Any) -> InputDeclaration:
    """Return the input that a ValueInfoProto declares. The name of the input is not checked."""

    def extent(dim: Any) -> int | str:
        if dim.dim_value > 0:
            return int(dim.dim_value)
        # A text without letters, such as "?", is not a name of an extent.
        return printable(dim.dim_param[:40]) if any(letter.isalpha() for letter in dim.dim_param) else ""

    tensor = value.type.tensor_type
    return InputDeclaration(str(value.name), tuple(map(extent, tensor.shape.dim)) if tensor.HasField("shape") else None)


def fixed_shapes(inputs: Iterable[InputDeclaration], given: Shapes | None = None) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input, with the shapes that the user has `given`.

    Raises InputError if a given shape names no input or does not fit its declaration, and UnsupportedError if an extent
    stays open.
    """
    declarations = {declaration.name: declaration for declaration in inputs}
    given = given or {}
    symbols: dict[str, int] = {}  # a symbol has the same extent in all inputs
    for name, shape in given.items():
        where = option("--shape", "shapes")
        if name not in declarations:
            raise InputError(where, f"the model has no input '{name}'", one_of(name, declarations))
        _check(declarations[name], shape, where)
        for extent, axis in zip(shape, declarations[name].axes or (), strict=False):
            if isinstance(axis, str) and axis and symbols.setdefault(axis, extent) != extent:
                reason = f"gives '{axis}' the extents {symbols[axis]} and {extent}"
                raise InputError(f"{where} {name}", reason, "give one extent to all axes of that name")
    # A batch axis gets the extent 1, because Tilewright has its own axis for samples. There are three kinds of batch
    # axes: an open axis 0, an axis with the same symbol as such an axis 0, and an axis with a symbol in BATCH.
    for declaration in declarations.values():
        for position, axis in enumerate(declaration.axes or ()):
            if isinstance(axis, str) and axis and (position == 0 or axis.lower() in BATCH):
                symbols.setdefault(axis, 1)
    return {
        name: given[name] if name in given else _fixed_shape(declaration, symbols)
        for name, declaration in declarations.items()
    }


def _check(declaration: InputDeclaration, shape: tuple[int, ...], where: str) -> None:
    where = f"{where} {declaration.name}"
    if len(shape) > MAX_RANK or not all(1 <= extent <= MAX_ELEMENTS for extent in shape):
        raise InputError(where, f"is {list(shape)[:MAX_RANK]}", f"give at most {MAX_RANK} extents of 1 or more")
    if declaration.axes is None:
        return
    fits = len(shape) == len(declaration.axes) and all(
        isinstance(axis, str) or axis == extent for axis, extent in zip(declaration.axes, shape, strict=True)
    )
    if not fits:
        text = ",".join(str(axis) or "?" for axis in declaration.axes)
        raise InputError(where, f"is {list(shape)}, but the model declares [{text}]", "give numbers for the names")


def _fixed_shape(declaration: InputDeclaration, symbols: Mapping[str, int]) -> tuple[int, ...]:
    where = f"input '{declaration.name}'"
    if declaration.axes is None:
        raise UnsupportedError(where, "has no shape in the file", f"give one: {declaration.shape_option(['1', '...'])}")
    # An open axis gets the extent of its symbol. A symbol without an extent stays as text, and is reported below.
    shape: list[int | str] = [symbols.get(axis, axis) if isinstance(axis, str) else axis for axis in declaration.axes]
    if shape and shape[0] == "":
        shape[0] = 1
    open_axes = [axis for axis, extent in enumerate(shape) if isinstance(extent, str)]
    if open_axes:
        name = f"'{shape[open_axes[0]]}'" if shape[open_axes[0]] else "of no name"
        example = declaration.shape_option((extent or "?") if isinstance(extent, str) else extent for extent in shape)
        remedy = f"give numbers for them: {example}" if len(open_axes) > 1 else f"give a number for it: {example}"
        raise UnsupportedError(where, f"has the open extent {name} at axis {open_axes[0]}", remedy)
    if len(shape) > MAX_RANK or not all(1 <= int(extent) <= MAX_ELEMENTS for extent in shape):
        raise UnsupportedError(where, f"has the shape {shape[:MAX_RANK]}", f"at most {MAX_RANK} axes are supported")
    return tuple(map(int, shape))


def check_until(path: Path, until: Collection[str]) -> None:
    """Check the option of values that replace a file's outputs. Raises InputError if the file is not an ONNX file."""
    if until and path.suffix == ".tflite":
        raise InputError(option("--until"), f"is for ONNX models, not for {path}", "leave it out")


def cut(graph: Any, until: Collection[str]) -> None:
    """Make the values `until` the outputs of a GraphProto, and remove nodes and constants that are no longer needed.

    Raises InputError if a value in `until` is not computed by a node.
    """
    computed = [output for node in graph.node for output in node.output if output]
    for output in until:
        if output not in computed:
            remedy = one_of(output, computed[-MOST:])
            raise InputError(option("--until"), f"the model computes no value '{output}'", remedy)
    needed = set(until)
    # A node is needed if `until` or a needed node reads one of its results. Readers come after the node, so one pass
    # from the last node to the first node is enough.
    for index in reversed(range(len(graph.node))):
        if needed.intersection(graph.node[index].output):
            needed.update(_read(graph.node[index]))
        else:
            del graph.node[index]
    onnx = package("onnx")
    info_of = {info.name: info for info in (*graph.value_info, *graph.output)}
    outputs = [info_of.get(output, onnx.ValueInfoProto(name=output)) for output in dict.fromkeys(until)]
    del graph.output[:]
    graph.output.extend(outputs)
    for entries in (graph.input, graph.initializer):
        for index in reversed(range(len(entries))):
            if entries[index].name not in needed:
                del entries[index]


def _read(node: Any) -> Iterator[str]:
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from _read(inner)


def domain_remedy(graph: Any, domains: Collection[str]) -> str:
    """Return the remedy for a graph that has operators outside of `domains`.

    The remedy is to compute only the values before these operators.
    """
    available = {value.name for value in (*graph.input, *graph.initializer)}
    computed: dict[str, None] = {}
    read_later = set[str]()
    for node in graph.node:
        if node.domain in domains and available.issuperset(filter(None, _read(node))):
            available.update(node.output)
            computed |= dict.fromkeys(filter(None, node.output))
        else:
            read_later.update(node.input)
    # These values can be computed, and an operator outside of `domains` (or after it) reads them.
    ends = [output for output in computed if output in read_later]
    if not ends:
        return "export with standard operators only"
    names = " or ".join(f"'{printable(end)}'" for end in ends[-2:])
    return f"{option('--until NAME', 'until=[NAME]')} runs the part that computes the value NAME, such as {names}"
