"""Programs on the machine.

`elf.load` reads a program. `core.run` runs it: the compiled loop of timing/ executes instructions, system.py those that
the loop leaves to Python (CSRs, devices, stores into code), and seam.py connects the CFU: its model, RTL in lock step
(rtl.py), or a class of the user's. The result is a `core.Run`: cycles and executions of each instruction, regions, and
bytes of RAM.

Two users are built on it. `execute.execute` runs any ELF file and makes a profile. `launch.run` runs the firmware of a
launch once for each sample, and turns the run into layers; with kernels of the user's, kernel_check.py compares each
layer with the reference. gdb/ drives a process from stop to stop.
"""
