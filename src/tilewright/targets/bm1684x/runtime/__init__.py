"""Kernels in Python, devices and what was launched."""
