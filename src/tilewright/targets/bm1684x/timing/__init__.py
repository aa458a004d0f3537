"""Timing: the cycles of each command, and when it runs."""
