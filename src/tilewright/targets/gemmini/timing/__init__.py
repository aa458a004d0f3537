"""The time of programs: the machine cycle by cycle, as the generated RTL behaves."""
