"""The CPU's loop, which executes and times each instruction; the caches; the bus; and the cycle costs.

loop.py is compiled by Numba with the functions of isa/ that compute values. state.py has the machine's state as arrays,
and the bus between the L1 caches and DRAM. costs.py has the numbers, each with its source.

The model is in order: an instruction takes one cycle, and the model adds each wait, with its cause, where it occurs.
The model need not look ahead: VexRiscv issues one instruction at a time, so the cycle of an instruction depends only on
earlier instructions. For compiled programs, cycles are within 1 % of the CPU's RTL (docs/cfu.md).
"""
