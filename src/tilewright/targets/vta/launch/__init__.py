"""A launch between host and machine: the layout of its tensors in DRAM, how they are written there and read back."""
