"""The simulation kernel, which all machines share. It simulates steps and memories; the machines are in targets/.

A target decodes a launch into a step table (`steps.py`): the unit of each step, the tokens that it pops and pushes, and
its footprint (the memory elements that the step touches). The passes work on this table, without data:

- `order.py` matches tokens and gives the happens-before relation, one legal order, and deadlocks.
- `hazards.py` checks footprints against this relation, in the ranges that `suspects.py` selects; `findings.py` groups
  the findings by cause.
- `timeline.py` simulates the time from the target's costs (`costs.py`); `causes.py` explains the time by the critical
  path.

`passes.py` runs each pass when its result is needed. Results are the trace (`steps.py`), `figures.py`, `events.py` for
energy and `chart.py` for the page. `walk.py` is the debugger's interface to a launch. `jit.py` compiles loops, and
`native.py` keeps the machine code of these loops.
"""
