"""Random calls of the device API whose results the vendor's model has computed once: their digests are in digests.txt.

`draw.py` draws numbers and the contents of memory, `families.py`, `moves.py` and `products.py` the arguments of calls.
All of them use NumPy's RandomState, whose streams never change, and no function of the machine that they test.
"""
