"""The description of every instruction: its fields, its text, and its meaning as an executable function.

`rv32.py` describes the instructions of the CPU, `custom.py` the instructions of the custom function unit. Called from
Python, the functions are the reference; the compiled loop calls compiled versions of the same functions.
"""
