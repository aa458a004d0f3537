"""Networks as descriptors, and plans for people."""
