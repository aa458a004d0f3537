"""VTA as gateware: the machine of a config in Amaranth. docs/gateware.md has its timing rules."""
