"""Compile networks to descriptors, and explain the plans."""
