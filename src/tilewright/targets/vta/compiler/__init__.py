"""The compiler of VTA: it turns a graph into launches, and tunes their instructions with the simulator's time pass.

1. `lower` turns a node into a `Layer` in tiles, or returns the reason why the host runs the node. `joint` fuses nodes
   into one layer. `chain` joins layers into a launch if no work of the host lies between the layers.
2. `search` finds the `Plan` of a layer: tile sizes, order of loops, slots in each memory. `search` ranks plans by a
   formula. `scores` times the best few plans.
3. `sequence` lists the work of the units, and the loads of this work. `kernels` makes the GEMM instructions, `epilogue`
   the ALU instructions. `planes` decides when the ALU shifts byte planes.
4. `emit` turns the list into instructions; `builder` adds the tokens that order the units.
5. `tune` times the whole launch, moves loads ahead and tries other plans. `compiler` adds the launch to a program.
"""
