"""The CFU as gateware in Amaranth: custom-0 instructions, buffers, and a systolic array. Needs the extra `rtl`."""
