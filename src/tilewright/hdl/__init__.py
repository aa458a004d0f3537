"""Gateware blocks that targets share (in Amaranth), and the driver of compiled models. Requires the extra `rtl`."""
