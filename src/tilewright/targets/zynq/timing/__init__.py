"""When the engine works and waits, in closed form."""
