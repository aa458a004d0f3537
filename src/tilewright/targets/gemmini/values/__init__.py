"""The value pass: the effect of commands on the scratchpad, the accumulator, the array and DRAM."""
