"""The driver of the engine, in C, for the CPU of the Zynq chip (the PS)."""
