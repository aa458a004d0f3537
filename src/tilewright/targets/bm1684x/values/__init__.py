"""The machine's arithmetic on NumPy arrays, equal bit for bit to the vendor's functional model, and its memories.

dtypes.py has the element types and rounding modes. floats.py converts and rounds: floats are computed as float32, and
stored as their own type. elementwise.py, conv.py and window.py compute on stored values; they know nothing of commands.
memory.py holds the bytes at bus addresses, the tables in static memory, and the options of a launch (`Knobs`).
"""
