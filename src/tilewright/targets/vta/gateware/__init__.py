"""VTA as gateware: the machine of a configuration, in Amaranth. docs/gateware.md states the timing rules."""
