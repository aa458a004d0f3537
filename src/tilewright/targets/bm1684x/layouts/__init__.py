"""The places of operands in memory: strides, addresses of elements, and drawings.

layout.py computes the strides of the named layouts. tensor.py has the operands of commands. An operand returns the bus
address of every element, and footprints, drawings and the debugger use only these addresses. samples.py describes how a
tensor of a network is stored. placement.py and drawing.py implement the command `tilewright layout`.
"""
