"""Descriptors of layers: fields, text, what a launch holds."""
