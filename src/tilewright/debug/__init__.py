"""The debugger: walks through a program instruction by instruction, both ways, and answers questions about it."""
