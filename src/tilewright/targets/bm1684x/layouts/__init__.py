"""Where the elements of operands lie: strides, addresses of elements, and drawings of them.

layout.py computes the strides of the named layouts. tensor.py has the operands of commands. An operand returns the bus
address of every element; footprints, drawings and the debugger use only these addresses. samples.py says how a tensor
of a network is stored. placement.py and drawing.py serve the command `tilewright layout`.
"""
