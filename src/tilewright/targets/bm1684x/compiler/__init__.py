"""The network compiler: a graph becomes layers (operations), then a plan (addresses), then queues of commands.

README.md one folder up lists the order in which to read the files.
"""
