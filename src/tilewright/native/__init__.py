"""Programs in C that use a target: compile libraries for them, and answer their requests in a process."""
