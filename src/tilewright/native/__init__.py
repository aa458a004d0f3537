"""Hosts in C that use a target.

A host is the user's C program, linked with a library of the target (hosts.py, compiled by build.py). The library starts
a Python process that simulates the device, and sends requests to this process over a socket (c/connection.h). serve.py
is the main loop of the process. A method of the target's `Server` answers each request.
"""
