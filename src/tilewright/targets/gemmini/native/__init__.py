"""Programs in C with the API of gemmini.h: a library records the commands of a program, and a process runs them."""
