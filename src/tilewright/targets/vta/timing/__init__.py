"""What each VTA instruction costs, by named timing models; and what no model of a machine can beat."""

from tilewright.targets.vta.timing.model import DEFAULT, MODELS, Intervals, Timing

__all__ = ["DEFAULT", "MODELS", "Intervals", "Timing"]
