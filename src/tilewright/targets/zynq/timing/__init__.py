"""When the engine works and when it waits, in closed form."""
