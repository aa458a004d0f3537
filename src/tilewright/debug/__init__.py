"""The debugger: it steps through a program forwards and backwards, and answers questions about the program.

A target supplies a `Walk` of a launch (`sim/walk.py`); this package contains nothing about single machines.
`launches.py` opens the launches of a program, and uses checkpoints to reach any moment of a launch. `session.py` is the
debugger in Python: movement, break points (`stops.py`), values at places (`places.py`), and questions. The answers come
from footprints (`places.py`), slices of the program (`slices.py`), times and tokens (`when.py`), or the reference
results (`compare.py`).

`records.py` has the classes of answers. `verbs.py` makes the session's methods available as commands, and `text.py`
prints the answers. `prompt.py` reads commands from a user or a script; `view.py` is a terminal view with panes.
"""
