"""The network compiler: graph -> layers (what is computed) -> plan (where it lies) -> queues of commands -> passes.

In which order the files are read: README.md one folder up.
"""
