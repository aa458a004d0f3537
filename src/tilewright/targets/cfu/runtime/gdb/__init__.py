"""A server for GDB: the remote serial protocol, on one program that runs on the simulated CPU."""
