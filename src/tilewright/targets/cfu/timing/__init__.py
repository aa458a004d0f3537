"""Time, and with it the run: the CPU's loop, which executes and times each instruction; its caches, bus and costs."""
