"""The network compiler: graph -> layers (what is computed) -> plan (where it lies) -> queues of commands.

Read in this order: stored.py, layer.py, requant.py, linear.py, pool.py, add.py, lower.py; local.py, stream.py,
emit.py, compile.py; image.py, values.py, passes.py; listing.py, explain.py.
"""
