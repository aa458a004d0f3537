"""The commands, as plain numbers for compiled loops."""

from __future__ import annotations

from tilewright.targets.gemmini.isa.fields import Funct

CONFIG, MVIN2, PRELOAD, MVIN3 = (int(each) for each in (Funct.CONFIG, Funct.MVIN2, Funct.PRELOAD, Funct.MVIN3))
COMPUTE_FLIP, COMPUTE_STAY = int(Funct.COMPUTE_PRELOADED), int(Funct.COMPUTE_ACCUMULATED)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000
