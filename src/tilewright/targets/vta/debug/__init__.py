"""VTA in the debugger: launches that run instruction by instruction (see sim/walk.py)."""
