"""The values that a layer computes."""
