"""The value pass: compute the effect of each instruction on the memories."""
