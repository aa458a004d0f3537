"""A part of an ONNX file: the nodes on which some values depend. The rest may use what is not supported."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from tilewright.errors import InputError, one_of, option, printable

#: Names of values that an error lists.
MOST = 20


def cut(graph: Any, until: Collection[str]) -> None:
    """Make the values `until` the outputs of a GraphProto, and remove what they do not depend on.

    Raises InputError if a value is not one that a node computes.
    """
    known = [name for node in graph.node for name in node.output if name]
    for name in until:
        if name not in known:
            remedy = one_of(name, known if len(known) <= MOST else known[-MOST:])
            raise InputError(option("--until"), f"the model computes no value '{name}'", remedy)
    needed, kept = set(until), []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(_read(node))
    kept.reverse()
    del graph.node[:]
    graph.node.extend(kept)
    typed = {info.name: info for info in (*graph.value_info, *graph.output)}
    outputs = [typed.get(name, name) for name in dict.fromkeys(until)]
    del graph.output[:]
    for output in outputs:
        if isinstance(output, str):
            graph.output.add().name = output
        else:
            graph.output.add().CopyFrom(output)
    for held in (graph.input, graph.initializer):
        for index in reversed(range(len(held))):
            if held[index].name not in needed:
                del held[index]


def _read(node: Any) -> Iterator[str]:
    """Yield the names that a node reads, and that the graphs inside it read or return."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from _read(inner)


def way_out(graph: Any, domains: Collection[str]) -> str:
    """Return the remedy for a graph with operators of other than `domains`: the last values that need none of them."""
    constants = {tensor.name for tensor in graph.initializer}
    fine = {info.name for info in graph.input} | constants
    made: dict[str, None] = {}
    read = set[str]()
    for node in graph.node:
        if node.domain in domains and fine.issuperset(filter(None, _read(node))):
            fine.update(node.output)
            made |= dict.fromkeys(filter(None, node.output))
        else:
            read.update(node.input)
    ends = [name for name in made if name in read]
    if not ends:
        return "export with standard operators only"
    names = " or ".join(f"'{printable(name)}'" for name in ends[-2:])
    return f"{option('--until NAME', 'until=[NAME]')} runs the part that computes the value NAME, such as {names}"
