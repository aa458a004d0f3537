"""Timing in closed form: when the engine works, and when it waits for pages."""
