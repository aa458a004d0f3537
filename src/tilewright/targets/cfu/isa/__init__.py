"""Every instruction, described once: its fields, its text and its meaning, an executable function.

`rv32.py` describes the CPU's instructions, `custom.py` those of the custom function unit. The compiled loop calls the
same functions, compiled; called from Python they are the reference.
"""
