"""The value pass: the effects of commands on the scratchpad, the accumulator, the array and DRAM."""
