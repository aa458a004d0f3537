"""The debugger: walks through a program instruction by instruction, both ways, and answers questions about it.

A target gives a `Walk` of a launch (`sim/walk.py`); this package knows no machine. `launches.py` opens the launches of
a program, and goes to any moment of one by checkpoints. `session.py` is the debugger in Python: movement, break points
(`stops.py`), values at places (`places.py`), and questions. These are answered by footprints (`places.py`), by slices
of the program (`slices.py`), by times and tokens (`when.py`), or by the reference (`compare.py`).

`records.py` has the answers. `verbs.py` makes commands of the session's methods, and `text.py` prints what they return.
`prompt.py` reads commands from a user or a script; `view.py` is the view with panes.
"""
