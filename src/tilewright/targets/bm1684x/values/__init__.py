"""The machine's arithmetic on NumPy arrays, equal bit for bit to the vendor's functional model, and its memories.

dtypes.py has the element types and rounding modes. floats.py converts and rounds. Arithmetic on floats is in float32;
results are stored in their own type. elementwise.py, conv.py and window.py compute on stored values, independently of
commands. memory.py holds the bytes at bus addresses, the tables in static memory, and the options of a launch
(`Knobs`).
"""
