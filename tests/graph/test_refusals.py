"""Why no compiler takes a node: the reasons that all machines share, in the same words on each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.ops import Conv2D, FullyConnected, MaxPool2D, Window
from tilewright.graph.ops.linear import NO_RESIDUAL
from tilewright.graph.takes import Takes

CODES = Quant((0.5,), (0,))


def tensor(name: str, *shape: int, dtype: str = "int8", constant: bool = False) -> Tensor:
    return Tensor(name, shape, dtype, CODES, np.ones(shape, dtype) if constant else None)


def convolution(**changed: Tensor) -> Site:
    """A convolution that every machine takes, with some tensors changed."""
    tensors = {
        "x": tensor("x", 1, 4, 4, 4),
        "w": tensor("w", 2, 1, 1, 4, constant=True),
        "b": tensor("b", 2, dtype="int32", constant=True),
        "y": tensor("y", 1, 4, 4, 2),
        **changed,
    }
    inputs = tuple(tensors[name] for name in ("x", "w", "b", "r") if name in tensors)
    node = Node("c", Conv2D("none", Window()), tuple(each.name for each in inputs), ("y",))
    return Site(node, inputs, (tensors["y"],))


WEIGHTS = tensor("w", 2, 1, 1, 4, constant=True)
REFUSED = [
    (convolution(), ""),
    (convolution(x=tensor("x", 1, 4, 4, 4, dtype="uint8")), "conv2d of uint8 ('x') is not supported; int8 codes are"),
    (convolution(y=tensor("y", 1, 4, 4, 2, dtype="uint8")), "conv2d of uint8 ('y') is not supported; int8 codes are"),
    (convolution(x=tensor("x", 1, 4, 4, 4, constant=True)), "the constant input 'x' is not supported"),
    (convolution(x=tensor("x", 3, 4, 4, 4)), "a batch of 3 in the model is not supported; a batch of 1 is"),
    (convolution(x=tensor("x", 1, 4, 4, 8)), "group=2 is not supported; group=1 is"),
    (convolution(r=tensor("r", 1, 4, 4, 2)), NO_RESIDUAL),
    (convolution(b=tensor("b", 2, dtype="int32")), "the bias 'b' is computed; it must be constant"),
    (
        convolution(w=tensor("w", 2, 1, 1, 4)),
        "the computed weights 'w' of int8 are not supported; constant weights of int8 are",
    ),
    (
        convolution(w=tensor("w", 2, 1, 1, 4, dtype="uint8", constant=True)),
        "the constant weights 'w' of uint8 are not supported; constant weights of int8 are",
    ),
    (
        convolution(w=replace(WEIGHTS, quant=Quant((0.5, 0.5), (0, 1)))),
        "the weights 'w' must have the zero point 0",
    ),
]


@pytest.mark.parametrize(("site", "reason"), REFUSED)
def test_what_the_plainest_machine_refuses(site: Site, reason: str) -> None:
    assert site.node.op.refusal(site, Takes()) == reason


@pytest.mark.parametrize(
    ("takes", "site"),
    [
        (Takes(("int8", "uint8")), REFUSED[1][0]),
        (Takes(stores=False), REFUSED[2][0]),
        (Takes(batch=True), REFUSED[4][0]),
        (Takes(groups=True), REFUSED[5][0]),
        (Takes(residual=True), REFUSED[6][0]),
        (Takes(weights=("int8", "uint8")), REFUSED[9][0]),
        (Takes(weight_zero_point=True), convolution(w=replace(WEIGHTS, quant=Quant((0.5, 0.5), (1, 1))))),
    ],
)
def test_what_a_machine_takes_in_addition(takes: Takes, site: Site) -> None:
    assert site.node.op.refusal(site, takes) == ""
    assert site.node.op.refusal(site, Takes()) != ""


def test_one_zero_point_for_all_channels() -> None:
    site = convolution(w=replace(WEIGHTS, quant=Quant((0.5, 0.5), (0, 1))))
    assert site.node.op.refusal(site, Takes(weight_zero_point=True)) == "the weights 'w' must have one zero point"


def test_only_image_operators_have_a_batch() -> None:
    x, w = tensor("x", 3, 4), tensor("w", 2, 4, constant=True)
    site = Site(Node("f", FullyConnected(), ("x", "w"), ("y",)), (x, w), (tensor("y", 3, 2),))
    assert site.node.op.refusal(site, Takes()) == ""
    pool = Site(Node("p", MaxPool2D(), ("x",), ("y",)), (tensor("x", 2, 4, 4, 1),), (tensor("y", 2, 4, 4, 1),))
    assert pool.node.op.refusal(pool, Takes()) == "a batch of 2 in the model is not supported; a batch of 1 is"


@pytest.mark.parametrize("target", ["cfu", "gemmini", "zynq"])
def test_all_machines_say_it_in_the_same_words(target: str) -> None:
    """A computed bias, through each compiler."""
    import tilewright as tw

    site = convolution(w=tensor("w", 2, 3, 3, 4, constant=True), b=tensor("b", 2, dtype="int32"))
    op = Conv2D("none", Window((3, 3), (1, 1), (1, 1, 1, 1)))
    tensors = {each.name: each for each in (*site.inputs, *site.outputs) if each is not None}
    node = replace(site.node, op=op)
    program = tw.compile(Graph("n", tensors, (node,), ("x", "b"), ("y",)), target)
    (step,) = program.steps
    assert getattr(step, "reason", None) == "the bias 'b' is computed; it must be constant"
