"""The machine's arithmetic on NumPy arrays, bit-exact to the vendor's functional model, and the machine's memories.

dtypes.py has the element types and rounding modes. floats.py converts and rounds. Arithmetic on floats is in float32,
and results are stored in their own type. elementwise.py, conv.py and window.py compute on stored values, independently
of commands. memory.py has the bytes at bus addresses, the tables in static memory, and the options of a launch
(`Knobs`).
"""
