"""Passes, each Graph -> Graph with the same outputs bit for bit."""
