"""The CFU system: an RV32IM core with a custom function unit, in lock step."""
