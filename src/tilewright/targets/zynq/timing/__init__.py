"""Timing in closed form: the cycles of the engine's work, and of its waits for pages."""
