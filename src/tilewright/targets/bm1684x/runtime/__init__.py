"""Kernels in Python: device.py has memory and launches; kernel.py has the functions that kernels call.

A call becomes a command (isa/), which runs at once on the device's memories. The steps of a launch then become a
program like that of a compiled network, and the passes find its hazards and times (recording.py). functions.py has
functions that are sequences of commands.
"""
