"""The compiler of VTA: a graph becomes launches, whose instruction streams are tuned with the simulator's time pass.

1. `lower` turns a node into a `Layer` in tiles, or gives the reason why the host runs it. `joint` fuses nodes into one
   layer. `chain` joins layers into a launch if the host has nothing to do between them.
2. `search` finds the `Plan` of a layer: tile sizes, order of loops, slots in each memory. It ranks plans by a formula,
   then `scores` times the best few.
3. `sequence` lists the work of the units and the loads for it, with GEMM instructions from `kernels` and ALU
   instructions from `epilogue`. `planes` places the shifts of byte planes.
4. `emit` makes instructions of the list; `builder` adds the tokens that order the units.
5. `tune` times the whole launch, moves loads ahead and tries other plans. `compiler` puts the result into a program.
"""
