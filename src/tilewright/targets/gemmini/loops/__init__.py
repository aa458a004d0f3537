"""Hardware loops: LOOP_WS and LOOP_CONV_WS as the primitive commands that the unrollers issue."""

from tilewright.targets.gemmini.loops.expand import expand
from tilewright.targets.gemmini.loops.expansion import Expansion

__all__ = ["Expansion", "expand"]
