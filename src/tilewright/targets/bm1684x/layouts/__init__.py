"""Layouts: the address of each element of an operand."""
