"""Kernels and hosts in C. A kernel is compiled together with a recorder, which runs the kernel in a separate process.

The recorder sends each call of the device API as a record. build.py generates the recorder's code from
capi/prototypes.h. firmware.py starts the process (runner.py) and reads the records. replay.py calls the same functions
in Python. Hosts in C are linked with the library in c/host.c, which communicates with a device process (host/serve.py).
"""
