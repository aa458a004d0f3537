"""Compile a network to firmware, and to data for this firmware.

The firmware is a C program with a small interpreter (firmware/main.c), which reads operator records one after the other
and calls a kernel for each record. So the compiler writes records for a network instead of code.

records.py turns each node into an operator: a record and constants. compile.py groups neighbouring operators into
launches and places their activations in the arena. layout.py packs records and constants for the C code, and generates
the C structures. firmware.py builds the ELF file of a variant (variants.py) from the C sources. project.py builds the
ELF file of the user's kernels.
"""
