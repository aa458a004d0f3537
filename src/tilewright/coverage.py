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

    `offers` are the values of `--set` to try, the smallest change of the machine first.
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
    """Return the option that moves the most multiply-accumulates to the machine, or None if no option moves a layer.

    `Offers.takes` decides for each layer alone. Ties are resolved by the number of layers, then by the order of the
    target's list.
    """
    target = targets.get(program.target)
    graph = program.graph
    host = on_host(program)
    if not isinstance(target, Offers) or graph is None:
        return None
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
    best = max(offers, key=lambda offer: (offer.macs, offer.layers), default=None)
    return best if best and best.layers else None


def advice(program: Program, model: str = "MODEL.onnx") -> str:
    """Return text that explains how to move more of a network to the machine.

    If no way is known, the text is the reason that keeps the most multiply-accumulates on the host. `model` is the
    network's file, for text with a command that quantises it.
    """
    reasons = on_host(program)
    if program.graph is None or not reasons:
        return ""
    target = targets.get(program.target)
    offer = best_offer(program)
    said = [str(offer)] if offer else []
    computes = isinstance(target, Approximates) and target.takes_real(target.config(program.config, {}))
    if real_share(program.graph, reasons) > HALF and not computes:
        said.append(f"make it int8: tilewright quantize {model} --calibration DATA -o INT8.onnx")
    return ", or ".join(said) or f"mostly because {weightiest(program.graph, reasons)}"


def on_host(program: Program) -> dict[str, str]:
    """Return the reason why the host runs a node, by the name of each such node."""
    return {step.node: step.reason for step in program.steps if isinstance(step, HostStep)}
