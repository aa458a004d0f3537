"""BM1684X in the debugger: launches of networks and of kernels, command by command (see sim/walk.py)."""
