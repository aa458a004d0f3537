"""Programs on the machine: ELF files and launches, devices, traps, the CFU's seam, and the profile of a run."""
