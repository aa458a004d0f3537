"""The host's side of a launch: the layout of the tensors in DRAM, and functions that write and read the tensors."""
