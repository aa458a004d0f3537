"""Kernels in Python: device.py has the memory and the launches, kernel.py the calls that kernels make.

A call becomes a command (isa/), which runs at once on the device's memories. The steps of a launch then become a
program like that of a compiled network, in which hazards and times are found (recording.py). functions.py has functions
that the machine computes as sequences of commands.
"""
