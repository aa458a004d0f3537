"""Programs in C with the names of gemmini.h: a library records their commands, and a process runs them."""
