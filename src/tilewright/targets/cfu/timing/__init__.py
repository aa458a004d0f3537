"""The CPU's loop: it executes and times each instruction, with caches, bus and cycle costs.

loop.py is compiled by Numba with the functions of isa/ that compute values. state.py has the machine's state as arrays,
and the bus between the L1 caches and DRAM. costs.py has the numbers, each with its source.

The model is in order: an instruction takes one cycle, and each wait is added where it happens, with its cause. A CPU
that looks ahead is not needed: VexRiscv issues one instruction at a time, so the cycle of its execution follows from
the cycles before it. Compiled programs take the cycles of the CPU's RTL within 1 % (docs/cfu.md).
"""
