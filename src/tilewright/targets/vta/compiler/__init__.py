"""The compiler of VTA: it turns a graph into launches, and tunes their instructions with the simulator's time pass.

1. `lower` turns a node into a `Layer` in tiles, or returns the reason why the host runs the node. `joint` fuses nodes
   into one layer. `chain` joins layers into a launch if the host has nothing to do between them.
2. `search` finds the `Plan` of a layer: tile sizes, order of loops, slots in each memory. `search` ranks plans by a
  formula. `scores` times the best few plans.
3. `sequence` makes a list of the units' work and its loads, with GEMM instructions from `kernels` and ALU instructions
  from `epilogue`. `planes` places the shifts of byte planes.
4. `emit` turns the list into instructions; `builder` adds the tokens that order the units.
5. `tune` times the whole launch, moves loads ahead and tries other plans. `compiler` adds the launch to a program.
"""
