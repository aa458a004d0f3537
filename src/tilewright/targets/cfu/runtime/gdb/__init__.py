"""A server for GDB's remote serial protocol. It controls one program on the simulated CPU."""
