"""Advice for a network that runs mostly on the host: how to move more of the network to the machine."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from tilewright import targets
from tilewright.errors import ConfigError, option
from tilewright.graph.ir import Site
from tilewright.program.program import HostStep, Program
from tilewright.report.summary import HALF, real_share, weightiest
from tilewright.run import Approximates
from tilewright.targets.base import Config


@runtime_checkable
class Offers(Protocol):
    """A target with options that can move layers from the host to the machine.

    `offers` lists values for `--set`, in ascending order of the change to the machine.
    """

    offers: tuple[str, ...]

    def takes(self, site: Site, config: Config, rounding: str) -> bool:
        """Return whether a machine with this configuration can run a node, regardless of the rest of the network."""


class Offer(NamedTuple):
    """A value of `--set`, and the layers and multiply-accumulates that it moves from the host to the machine."""

    option: str
    layers: int
    macs: int

    def __str__(self) -> str:
        layers = "layer" if self.layers == 1 else "layers"
        return f"{option(f'--set {self.option}', self.option)} takes {self.layers} more {layers}"


def best_offer(program: Program) -> Offer | None:
    """Return the option that moves the most multiply-accumulates to the machine, or None if no option moves a layer."""
    target = targets.get(program.target)
    graph = program.graph
    host = on_host(program)
    if not isinstance(target, Offers) or graph is None:
        return None
    # `takes` judges each layer without its neighbours, so the result is an estimate that needs no compilation.
    left = [site for site in graph.sites() if site.node.name in host]
    offers = []
    for setting in target.offers:
        key, _, value = setting.partition("=")
        try:
            config = target.config(program.config, {key: value})
        except ConfigError:
            continue  # this machine cannot be built with the option
        taken = [site for site in left if target.takes(site, config, program.rounding)]
        offers.append(Offer(setting, len(taken), sum(site.node.op.macs(site) for site in taken)))
    # Of options with equal MACs, the option with the most layers wins, then the target's first option.
    best = max(offers, key=lambda offer: (offer.macs, offer.layers), default=None)
    return best if best and best.layers else None


def advice(program: Program, model: str = "MODEL.onnx") -> str:
    """Return text that explains how to move more of a network to the machine.

    If no option helps, the text is the host's most important reason (see `weightiest`). `model` is the file name in a
    suggested command `tilewright quantize`.
    """
    reasons = on_host(program)
    if program.graph is None or not reasons:
        return ""
    target = targets.get(program.target)
    offer = best_offer(program)
    said = [str(offer)] if offer else []
    # A machine that computes real numbers needs no int8 model.
    computes = isinstance(target, Approximates) and target.takes_real(target.config(program.config, {}))
    if real_share(program.graph, reasons) > HALF and not computes:
        said.append(f"make it int8: tilewright quantize {model} --calibration DATA -o INT8.onnx")
    return ", or ".join(said) or f"mostly because {weightiest(program.graph, reasons)}"


def on_host(program: Program) -> dict[str, str]:
    return {step.node: step.reason for step in program.steps if isinstance(step, HostStep)}
