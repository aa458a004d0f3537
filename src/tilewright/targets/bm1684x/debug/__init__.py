"""The debugger's view of launches (sim/walk.py): of compiled networks (network.py) and of kernels (kernels.py)."""
