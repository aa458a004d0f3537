"""Runs what a target does not take, by the graph's own integer reference."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.graph.reference import value_of
from tilewright.graph.rounding import rounding_mode


def run_node(graph: Graph, name: str, values: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """The outputs of node `name` for S samples, {tensor: (S, *shape)}."""
    node = graph.node(name)
    operands = [value_of(graph, values, operand) for operand in node.inputs]
    results = node.op.evaluate(graph.site(node), operands, rounding_mode(rounding))
    return dict(zip(node.outputs, results, strict=True))
