"""VTA's C API: headers and a library for hosts in C and C++, and the process that simulates the machine."""
