"""Compile a network: each supported node becomes a layer, and neighbouring layers become one launch.

compile.py drives it. `lower` turns a node into a `Layer` (layer.py), or gives the reason why the node runs on the host;
linear.py, codes.py and real.py have the rules. A layer is a short list of machine operations that run on each tile of
its result, with their constants. folding.py rewrites convolutions of few channels, so that the matrix unit is not idle.

tiles.py cuts a layer into tiles, and turns a tile into commands once the byte offsets of its operands are known.
plan.py chooses these offsets: which tensors share memory, and how many samples have room. assembly.py collects the
commands of both engines, finds which command waits for which, and orders the transfers. build.py puts it together:
first with all tensors in local memory; if they do not fit, some rows of the result at a time. compile.py compares the
splits of a network that is too large for one launch.
"""
