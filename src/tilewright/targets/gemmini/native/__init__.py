"""Host programs in C with the API of gemmini.h. A C library records the commands, and a process executes them."""
