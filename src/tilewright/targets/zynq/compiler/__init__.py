"""Compile networks to layer descriptors of the engine, and explain the result."""
