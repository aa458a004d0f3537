"""Kernels and hosts in C. A kernel is compiled together with a recorder, and runs in a separate process.

The recorder sends a record for each call of the device API. build.py generates the code that records the calls from
capi/prototypes.h. firmware.py starts the process (runner.py) and reads the records. replay.py calls the same functions
in Python. A host in C is linked with the library c/host.c, which communicates with a device process (host/serve.py).
"""
