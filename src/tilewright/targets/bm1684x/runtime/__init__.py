"""Runtime: devices, kernels in Python, and recordings of launches."""
