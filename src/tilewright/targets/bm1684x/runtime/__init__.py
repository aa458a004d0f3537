"""Kernels in Python: device.py has memory and launches, and kernel.py has the functions that kernels call.

Each call becomes a command (isa/), which runs immediately on the device's memories. After the launch, its commands
become a program, as for a compiled network, and the passes find hazards and times (recording.py). functions.py has
functions that are sequences of commands.
"""
