"""The cycles of VTA instructions under named timing models, and a lower bound for every schedule."""

from tilewright.targets import given
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.timing.chisel import CHISEL
from tilewright.targets.vta.timing.model import HLS, IDEAL, TILEWRIGHT, Handover, Intervals, Timing

#: The numbers that a what-if may change, with their minimum values.
LEAST = {"gemm": 1, "alu": 1, "alu_immediate": 1, "requantise": 1, "dispatch": 0, "pipeline": 0}
MODELS = given.Models.of((TILEWRIGHT, HLS, CHISEL, IDEAL), **LEAST)
DEFAULT = TILEWRIGHT.source.name


def first(config: Config) -> str:
    """Return the timing model of a machine's own RTL: upstream's Chisel design, or else this package's gateware."""
    return (CHISEL if config.is_chisel else TILEWRIGHT).source.name


__all__ = ["DEFAULT", "LEAST", "MODELS", "Handover", "Intervals", "Timing", "first"]
