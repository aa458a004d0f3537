"""What a network asks of any machine: multiplications, volumes of data and weights, and their ratio, layer by layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Graph, Site, Tensor


@dataclass(frozen=True)
class Row:
    """A node; bytes as stored in the model, for one sample."""

    name: str
    op: str
    macs: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int

    @property
    def intensity(self) -> float:
        """Multiply-accumulates for each byte, every tensor moved once."""
        moved = self.input_bytes + self.weight_bytes + self.output_bytes
        return self.macs / moved if moved else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "macs_per_byte": self.intensity}


def rows(graph: Graph) -> list[Row]:
    """One row a node, and the network's: inputs and outputs of the whole, all weights."""
    found = [_row(site) for site in graph.sites()]
    ends = [sum(_bytes(graph.tensors[name]) for name in names) for names in (graph.inputs, graph.outputs)]
    macs, weights = sum(row.macs for row in found), sum(row.weight_bytes for row in found)
    return [*found, Row("total", "", macs, ends[0], weights, ends[1])]


def real_share(graph: Graph, nodes: Collection[str]) -> float:
    """The part of the network's multiplications that are of real numbers, in some nodes of it."""
    macs = [(site.node.op.macs(site), site) for site in graph.sites() if site.inputs]
    real = sum(n for n, s in macs if s.inputs[0] and s.inputs[0].dtype.startswith("float") and s.node.name in nodes)
    return real / max(1, sum(count for count, _ in macs))


def weightiest(graph: Graph, reasons: Mapping[str, str]) -> str:
    """The reason that keeps most multiplications of real numbers from the target; `reasons` are by node."""
    total: dict[str, int] = {}
    for site in graph.sites():
        if site.node.name in reasons and site.inputs and site.inputs[0] and site.inputs[0].dtype.startswith("float"):
            reason = reasons[site.node.name]
            total[reason] = total.get(reason, 0) + site.node.op.macs(site)
    return max(total, key=lambda reason: total[reason], default="")


def _row(site: Site) -> Row:
    given = [tensor for tensor in site.inputs if tensor]
    return Row(
        name=site.node.name,
        op=site.node.op.label,
        macs=site.node.op.macs(site),
        input_bytes=sum(_bytes(tensor) for tensor in given if tensor.data is None),
        weight_bytes=sum(_bytes(tensor) for tensor in given if tensor.data is not None),
        output_bytes=sum(_bytes(tensor) for tensor in site.outputs),
    )


def _bytes(tensor: Tensor) -> int:
    return tensor.size * np.dtype(tensor.dtype).itemsize
