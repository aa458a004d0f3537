"""Descriptors of layers: their fields and text form, and the contents of a launch."""
