"""How to quantise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.quantize.samples import Pixels

SCHEMES = ("affine", "pow2")


@dataclass(frozen=True)
class Options:
    """How to quantise; `method` and `activations` are for `affine` only."""

    scheme: str = "affine"
    method: str = "minmax"
    activations: str = "int8"
    pixels: Pixels | None = None
