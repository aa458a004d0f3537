"""Compile a network: each supported node becomes a layer, and neighbouring layers become one launch.

compile.py has the main loop. `lower` turns a node into a `Layer` (layer.py), or returns the reason why the node runs on
the host. The rules are in linear.py, codes.py and real.py. A layer has a short list of machine operations, which run on
each tile of its result, and their constants. folding.py rewrites convolutions of few channels to use more of the matrix
unit.

tiles.py cuts a layer into tiles, and turns a tile into commands when the offsets of its operands are known. plan.py
chooses these offsets: it decides which tensors share memory, and how many samples fit. assembly.py collects the
commands of both engines, finds the dependencies between commands, and orders the transfers. build.py builds the launch.
The first attempt keeps all tensors in local memory. If the tensors do not fit, the launch computes some rows of the
result at a time. If a network is too large for one launch, compile.py compares ways to split the network.
"""
