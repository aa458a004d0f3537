"""Token counters that saturate instead of making a push wait."""

from __future__ import annotations

import numpy as np

from tilewright.sim.findings import LOST, Finding
from tilewright.sim.trace import Trace


def lost_tokens(trace: Trace, limit: int) -> list[Finding]:
    """One finding for each queue where a push finds `limit` tokens: the counter stays as it is.

    A push counts in the last cycle of its step, a pop in the first; of both in one cycle neither changes the counter.
    """
    table, found = trace.table, []
    for index, queue in enumerate(table.queues):
        pushes, pops = (np.flatnonzero(mask >> index & 1) for mask in (table.pushes, table.pops))
        popped = np.searchsorted(trace.start[pops], trace.end[pushes] - 1, side="right")
        late = pushes[np.arange(len(pushes)) - popped >= limit]
        if late.size:
            step = int(late[0])
            message = (
                f"{queue.name} holds {limit} tokens when #{step} {table.describe(step)} pushes one more: it is lost, "
                f"and what is taken later takes another's; let {table.units[queue.consumer]} pop earlier"
            )
            found.append(Finding(LOST, message, (step,), queue=queue.name))
    return found
