"""Hosts in C that use a target.

A host is the user's C program. It is linked with a library of the target (hosts.py, compiled by build.py), which starts
a Python process that holds the device, and sends it requests over a socket (c/connection.h). serve.py is the loop of
this process: it answers each request by a method of the target's `Server`.
"""
