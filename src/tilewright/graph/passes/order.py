"""Real numbers last: what computes codes need not wait for what only the outputs of the network need."""

from __future__ import annotations

from dataclasses import replace

from tilewright.graph.ir import Graph, Node

_CODES = ("int8", "uint8")


def codes_first(graph: Graph) -> Graph:
    """The same network; nodes that write no codes come as late as their readers allow. Needs a valid graph."""
    ordered: list[Node] = []
    delayed: dict[str, Node] = {}  # by what they write, in order
    for node in graph.nodes:
        if all(graph.tensors[name].dtype not in _CODES for name in node.outputs):
            delayed |= dict.fromkeys(node.outputs, node)
            continue
        needed: set[str] = set()
        asked = list(node.inputs)
        while asked:
            writer = delayed.get(asked.pop())
            if writer is not None and writer.name not in needed:
                needed.add(writer.name)
                asked += writer.inputs
        if needed:
            ordered += [earlier for earlier in dict.fromkeys(delayed.values()) if earlier.name in needed]
            delayed = {name: earlier for name, earlier in delayed.items() if earlier.name not in needed}
        ordered.append(node)
    return replace(graph, nodes=(*ordered, *dict.fromkeys(delayed.values())))
