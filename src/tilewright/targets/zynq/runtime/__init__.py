"""The PS driver in C."""
