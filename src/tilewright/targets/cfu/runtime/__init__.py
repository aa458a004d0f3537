"""Programs on the machine: ELF files and launches, devices, traps, calls of the CFU, and the profile of a run."""
