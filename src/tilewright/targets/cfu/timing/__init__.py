"""The CPU's loop, which executes and times each instruction, with its caches, bus and cycle costs."""
