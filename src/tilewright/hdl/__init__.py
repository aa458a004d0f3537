"""Gateware that targets share, in Amaranth, and the driver of compiled models. Needs the extra `rtl`."""
