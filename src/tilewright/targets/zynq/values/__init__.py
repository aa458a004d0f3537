"""The value pass: the results of a layer."""
