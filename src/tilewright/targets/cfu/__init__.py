"""The CFU system: an RV32IM core with a custom function unit, in lock step, and the firmware that runs on it."""

from .target import TARGET

__all__ = ["TARGET"]
