"""Products of two computed operands, matrix by matrix: attention's scores and mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.errors import ModelError
from tilewright.graph.ir import Site
from tilewright.graph.ops.base import Op, Shape, given
from tilewright.graph.ops.linear import centre
from tilewright.graph.requant import Requant
from tilewright.graph.rounding import Rounding


@dataclass(frozen=True)
class MatMul(Op):
    """out = requantise(sum((a - za) * (b - zb))): a (..., M, K), b (..., K, N), leading axes alike."""

    kind = "matmul"

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        a, b = site.input(0).shape, site.input(1).shape
        if len(a) < 2 or len(a) != len(b) or a[:-2] != b[:-2] or a[-1] != b[-2]:
            raise ModelError(f"op '{site.node.name}'", f"{list(a)} and {list(b)} are no matrices to be multiplied")
        return ((*a[:-1], b[-1]),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        left, right = (centre(given(values[index]), site.input(index)) for index in (0, 1))
        samples = max(len(left), len(right))
        left, right = (np.broadcast_to(x, (samples, *x.shape[1:])) for x in (left, right))
        acc = exact_matmul(left.reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:]), 255, 255)
        return (self.finish(site, acc.reshape(samples, *site.output.shape), rounding),)

    def finish(self, site: Site, acc: Array, rounding: Rounding) -> Array:
        """Codes of accumulators (S, *out_shape)."""
        requant = Requant.of_product(site.input(0), site.input(1), site.output, "none", rounding.delegated)
        return requant.apply(acc, rounding.fully_connected)

    def macs(self, site: Site) -> int:
        return site.output.size * site.input(0).shape[-1]


def matrices(site: Site) -> tuple[int, int, int, int]:
    """How many products there are, and M, K and N of each."""
    *leading, rows, depth = site.input(0).shape
    return prod(leading), rows, depth, site.output.shape[-1]
