"""The reference results: a graph evaluated node by node in exact integer NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.rounding import rounding_mode

#: Bytes of the widest patch matrix: the number of samples evaluated together is chosen to stay near it.
BLOCK_BYTES = 1 << 27

#: Largest real input. A larger one overflows every integer type when quantised: undefined in the reference kernels.
MAX_REAL = 1e9

Observer = Callable[[Site, tuple[Array, ...]], None]


def check_inputs(graph: Graph, inputs: Array | Mapping[str, Array]) -> dict[str, Array]:
    """Return `inputs`, a mapping or the array of a single-input graph, as {input name: array (S, *shape)}.

    An array may omit the model's batch axis of 1, and a single sample may omit the sample axis as well. Raises
    InputError if names, shapes or types do not fit the graph, or if a value is not finite or exceeds MAX_REAL.
    """
    if not isinstance(inputs, Mapping):
        if len(graph.inputs) != 1:
            raise InputError(
                "inputs", f"the model has {len(graph.inputs)} inputs: {', '.join(graph.inputs)}", "give each by name"
            )
        inputs = {graph.inputs[0]: inputs}
    if set(inputs) != set(graph.inputs):
        raise InputError("inputs", f"got {sorted(inputs)} but the model takes {sorted(graph.inputs)}")
    checked = {name: _samples(graph.tensors[name], np.asarray(inputs[name])) for name in graph.inputs}
    if len({array.shape[0] for array in checked.values()}) > 1:
        raise InputError(
            "inputs", f"have different numbers of samples: { {n: a.shape[0] for n, a in checked.items()} }"
        )
    return checked


def _samples(tensor: Tensor, array: Array) -> Array:
    where = f"input '{tensor.name}'"
    shapes = [tensor.shape] + ([tensor.shape[1:]] if tensor.shape[:1] == (1,) else [])
    if array.shape in shapes:
        array = array[None]
    if array.shape[1:] not in shapes or array.shape[0] == 0:
        raise InputError(
            where, f"has the shape {list(array.shape)}", f"give a sample of shape {list(shapes[-1])}, or N stacked"
        )
    if array.dtype != tensor.dtype:
        quant = f" (scale {tensor.scale:.9g}, zero point {tensor.zero_point})" if tensor.quant else ""
        raise InputError(where, f"is {array.dtype}", f"give {tensor.dtype} values{quant}")
    wide = np.promote_types(array.dtype, np.float32) if array.dtype.kind == "f" else array.dtype
    if array.dtype.kind == "f" and not (np.abs(array.astype(wide, copy=False)) <= MAX_REAL).all():
        raise InputError(where, f"holds NaN, infinity or a magnitude above {MAX_REAL:g}", "give finite values")
    return array.reshape(array.shape[0], *tensor.shape)


def run(
    graph: Graph, inputs: Array | Mapping[str, Array], rounding: str | None = None, observe: Observer | None = None
) -> dict[str, Array]:
    """Return the outputs {name: (S, *shape)} for S samples, under a rounding mode [default: the model's own].

    `observe` is called after every node with the node's Site and results, once for each block of samples.
    """
    samples, rounding = check_inputs(graph, inputs), rounding or graph.rounding
    total = next(iter(samples.values())).shape[0]
    block = max(1, BLOCK_BYTES // widest(graph))
    parts = [
        run_block(graph, {name: array[start : start + block] for name, array in samples.items()}, rounding, observe)
        for start in range(0, total, block)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in graph.outputs}


def run_block(graph: Graph, samples: Mapping[str, Array], rounding: str, observe: Observer | None) -> dict[str, Array]:
    """Return the outputs {name: (S, *shape)} for samples evaluated together. Values are dropped after the last use."""
    mode = rounding_mode(rounding)
    values: dict[str, Array] = dict(samples)
    last_use = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    for index, site in enumerate(graph.sites()):
        operands = [value_of(graph, values, name) for name in site.node.inputs]
        results = site.node.op.evaluate(site, operands, mode)
        values.update(zip(site.node.outputs, results, strict=True))
        if observe:
            observe(site, results)
        for name in site.node.inputs:
            if last_use[name] == index and name not in graph.outputs:
                values.pop(name, None)
    count = next(iter(samples.values())).shape[0]
    outputs = {name: value_of(graph, values, name) for name in graph.outputs}
    return {
        name: np.broadcast_to(array, (count, *array.shape[1:])) for name, array in outputs.items() if array is not None
    }


def value_of(graph: Graph, values: Mapping[str, Array], name: str) -> Array | None:
    """Return the value of tensor `name`, with a leading sample axis (1 for constants).

    Return None for an absent optional input (an empty name), and for a tensor that has not been computed.
    """
    if not name or name in values:
        return values.get(name)
    data = graph.tensors[name].data
    return None if data is None else data[None]


def widest(graph: Graph) -> int:
    """Return the size in bytes of the largest tensor or im2col matrix that one sample needs, as float32."""
    size = 1
    for site in graph.sites():
        columns = max((1, *site.output.shape[-1:]))
        size = max(size, site.output.size, site.node.op.macs(site) // columns)
    return 4 * size


def run_node(graph: Graph, name: str, values: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """Return the reference outputs of node `name`, {tensor: (S, *shape)}, given the `values` of its inputs."""
    node = graph.node(name)
    operands = [value_of(graph, values, operand) for operand in node.inputs]
    results = node.op.evaluate(graph.site(node), operands, rounding_mode(rounding))
    return dict(zip(node.outputs, results, strict=True))
