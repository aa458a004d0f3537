"""Programs on the machine.

`elf.load` reads a program. `core.run` runs the program: the compiled loop of timing/ executes most instructions, and
system.py executes CSR instructions, device accesses and stores into code in Python. seam.py connects the CFU: its
model, RTL in lock step (rtl.py), or the user's class. The result is a `core.Run`: cycles and executions of each
instruction, regions, and bytes of RAM.

`execute.execute` runs any ELF file and makes a profile. `launch.run` runs the firmware of a launch once for each
sample, and divides the run into layers. If the user wrote the kernels, kernel_check.py compares each layer with the
reference. gdb/ is the server for a debugger.
"""
