"""Zynq in the debugger: a layer row by row, with the page services of the CPU (see sim/walk.py)."""
