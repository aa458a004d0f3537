"""The simulation kernel, which all machines share. It knows steps and memories, but no machine.

A target decodes a launch into a step table (`steps.py`): the unit of each step, the tokens that it pops and pushes, and
its footprint, which is the memory elements that it touches. The passes work on this table, without data:

- `order.py` matches tokens and gives the happens-before relation, one legal order, and deadlocks.
- `hazards.py` checks footprints against this relation, in the ranges that `suspects.py` leaves; `findings.py` groups
  the findings by cause.
- `timeline.py` simulates the time, from the target's `costs.py`; `causes.py` explains it by the critical path.

`passes.py` runs them when they are needed. Results are the trace (`steps.py`), `figures.py`, `events.py` for energy
and `chart.py` for the page. `walk.py` is the launch as the debugger sees it. `jit.py` compiles loops, and `native.py`
keeps their machine code.
"""
