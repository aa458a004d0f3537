"""The network compiler: graph -> layers (operations) -> plan (addresses) -> queues of commands -> passes.

README.md one folder up lists the order in which to read the files.
"""
