"""Compile a network to firmware and the data that it interprets.

The firmware is a C program with a small interpreter (firmware/main.c): it reads operator records one after the other
and calls a kernel for each. So compiling a network means to write records, not code.

records.py turns each node into an operator: a record and constants. compile.py groups neighbouring operators into
launches and places their activations in the arena. layout.py packs records and constants as the C code reads them, and
generates the C structures for it. firmware.py builds the ELF file of a variant (variants.py) from the C sources;
project.py builds that of the user's own kernels.
"""
