"""A launch between host and machine: where its tensors lie in DRAM, how they get there, and what becomes of results."""
