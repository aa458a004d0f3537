"""Which nodes the machine takes, and as which layers."""

from __future__ import annotations

from tilewright.errors import ModelError
from tilewright.graph.ir import Site
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mean,
    OnnxOp,
)
from tilewright.graph.rounding import Rounding
from tilewright.targets.bm1684x.compiler import pool
from tilewright.targets.bm1684x.compiler.add import add
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.linear import linear
from tilewright.targets.bm1684x.compiler.real import real
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.writer import Refused
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.layouts.tensor import LARGEST

POOLS = {MaxPool2D: pool.maximum, AveragePool2D: pool.average, Mean: pool.mean}


def lower(site: Site, mode: Rounding, config: Config) -> Layer | str:
    """The layer of a node, or why the host runs it. A reshaped input is read where it lies."""
    try:
        return _lower(site, mode, config)
    except Refused as refused:
        return str(refused)
    except ModelError as error:  # a factor that no rule takes
        return error.reason


def _lower(site: Site, mode: Rounding, config: Config) -> Layer:
    op = site.node.op
    tensors = [tensor for tensor in (*site.inputs[:2], *site.outputs) if tensor is not None]
    if any(extent > LARGEST for tensor in tensors for extent in tensor.shape):
        largest = max(extent for tensor in tensors for extent in tensor.shape)
        raise Refused(f"an extent of {largest} is not supported; the largest is {LARGEST}")
    if isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected):
        return linear(site, _stored(site, 0), mode)
    if isinstance(op, OnnxOp):
        return real(site, config)
    if isinstance(op, Add):
        return add(site, (_stored(site, 0), _stored(site, 1)), mode)
    for kind, rule in POOLS.items():
        if isinstance(op, kind):
            return rule(site, _stored(site, 0), mode)
    raise Refused(f"the bm1684x compiler has no rule for {op.label}")


def _stored(site: Site, index: int) -> Stored:
    tensor = site.input(index)
    if tensor.data is not None:
        raise Refused(f"the constant operand '{tensor.name}' is not supported; only weights and bias are constant")
    if len(tensor.shape) == 4 and tensor.shape[0] != 1:
        raise Refused(f"a batch of {tensor.shape[0]} in the model is not supported; --set batch=N runs N samples")
    return Stored.of(tensor)
