"""A fuzzer of every kind of file that the command line reads.

`python -m tests.fuzz [KIND...] --count N --seed S` damages small valid files and runs the commands that read them.
`mutate.py` has the ways to damage a file, `kinds.py` the kinds of files with their commands, `run.py` the limits.
"""
