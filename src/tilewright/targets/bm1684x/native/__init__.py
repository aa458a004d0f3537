"""Kernels in C: headers and a recorder made from the tables of `capi`, a compiler call, and processes that run them."""
