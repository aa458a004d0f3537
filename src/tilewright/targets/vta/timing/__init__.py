"""The cycles of VTA instructions under named timing models, and a lower bound for every schedule."""

from tilewright.targets.vta.timing.model import DEFAULT, MODELS, Handover, Intervals, Timing

__all__ = ["DEFAULT", "MODELS", "Handover", "Intervals", "Timing"]
