"""Replay golden vectors of the vendor's functional model: operations (ops.py), layouts and networks (vectors.py)."""
