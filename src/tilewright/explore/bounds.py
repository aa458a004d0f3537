"""Lower bounds of a machine's objectives. A search skips a machine if a measured machine is better than its bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from math import inf, prod
from typing import Protocol, runtime_checkable

import numpy as np

from tilewright.energy import estimate, read
from tilewright.explore.measure import Model, Subject
from tilewright.explore.trial import Value
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, Linear
from tilewright.program.program import Configuration
from tilewright.run import timing_model
from tilewright.sim.events import Events

#: {model: names of the layers that run on the host}.
Hosts = Mapping[str, Sequence[str]]


@runtime_checkable
class Bounded(Protocol):
    """A target that computes lower bounds, valid for all programs of a network, without compiling."""

    def floor(self, graph: Graph, config: Configuration, rounding: str, timing: str, host: Collection[str]) -> Events:
        """Return events, with the smallest possible count of each kind (including cycles) in a program of a network.

        The host may run the nodes `host`. The machine runs all other nodes.
        """


def least(
    subject: Subject, objectives: Sequence[str], config: Configuration, sizes: Mapping[str, Value], host: Hosts
) -> tuple[float, ...]:
    """Return a lower bound for each objective of a machine with these `sizes`. The layers `host` run on the host.

    The bounds of cycles, DRAM bytes and energy come from the target's `floor`. If the target has no `floor`, the bound
    of the cycles is the number of products, without products of padding, divided by the products per cycle. Sizes are
    exact. The bound of any other objective is 0.
    """
    lowest = {name: float(value) for name, value in sizes.items() if not isinstance(value, str)}
    lowest |= {"cycles": 0.0, "dram_bytes": 0.0, "energy": 0.0}
    target = subject.machine
    timing = timing_model(target, subject.timing, config)
    for model in subject.models:
        here = frozenset(host.get(model.name, ()))
        if isinstance(target, Bounded) and timing:
            graph = model.load()
            events = target.floor(graph, config, subject.rounding or graph.rounding, timing, here)
            cycles = float(events.cycles)
            lowest["dram_bytes"] += events.read_bytes + events.write_bytes
            lowest["energy"] += estimate(events, read(subject.energy)).picojoules
        else:
            # If the peak is unknown, the bound is 0.
            cycles = _products(model, here) / (lowest.get("macs_per_cycle") or inf)
        lowest[f"cycles_{model.name}"] = cycles
        lowest["cycles"] += cycles
    if clock := lowest.get("clock_mhz"):
        lowest["microseconds"] = lowest["cycles"] / clock
    return tuple(lowest.get(name, 0.0) for name in objectives)


@lru_cache(maxsize=64)
def _products(model: Model, host: frozenset[str]) -> int:
    return sum(_inside(site) for site in model.load().sites() if site.node.name not in host)


def _inside(site: Site) -> int:
    """Return the number of products of a node (0 without weights). Products of padding do not count."""
    op = site.node.op
    if not isinstance(op, Linear):
        return 0
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        return site.input(0).size * site.output.shape[-1]
    taps = 1
    kernel, stride, dilation = (op.window.kernel, op.window.stride, op.window.dilation)
    for axis in (0, 1):
        # For each output position and each tap: the input position, which may lie in the padding.
        at = np.arange(site.output.shape[1 + axis])[:, None] * stride[axis] - op.window.padding[2 * axis]
        at = at + np.arange(kernel[axis]) * dilation[axis]
        taps *= int(((at >= 0) & (at < site.input(0).shape[1 + axis])).sum())
    weights = site.input(1).size // prod(kernel)  # the weights of one tap, for all output channels
    return taps * weights
