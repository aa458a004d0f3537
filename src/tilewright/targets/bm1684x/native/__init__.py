"""Kernels and hosts in C. A kernel is compiled with a recorder, which runs it in a process of its own.

The recorder sends each call of the device API as a record (build.py generates its code from capi/prototypes.h).
firmware.py starts the process (runner.py) and reads the records; replay.py issues them as the calls of the same
functions in Python. Hosts in C are linked with the library in c/host.c, which talks to a process with the device
(host/serve.py).
"""
