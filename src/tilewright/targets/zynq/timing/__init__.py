"""Timing in closed form: the cycles in which the engine works, and the cycles in which it waits for pages."""
