"""What each VTA instruction costs: one frozen table a timing model, each number with its source."""

from tilewright.targets.vta.timing.hls import HLS, IDEAL
from tilewright.targets.vta.timing.model import Intervals, Timing
from tilewright.targets.vta.timing.tilewright import TILEWRIGHT

__all__ = ["DEFAULT", "MODELS", "Intervals", "Timing"]

MODELS = {model.source.name: model for model in (TILEWRIGHT, HLS, IDEAL)}
DEFAULT = TILEWRIGHT.source.name
