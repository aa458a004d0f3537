"""The reference results: a graph evaluated node by node in exact integer NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import Rounding, rounding_mode
from tilewright.graph.tensor import Tensor

#: The memory limit, in bytes, of the largest patch matrix of the samples that are evaluated together.
BLOCK_BYTES = 1 << 27

#: The largest real input. Quantising a larger number overflows every integer type, which is undefined behaviour in the
#: reference kernels.
MAX_REAL = 1e9

Observer = Callable[[Site, tuple[Array, ...]], None]


def check_inputs(graph: Graph, inputs: Array | Mapping[str, Array]) -> dict[str, Array]:
    """Return `inputs` as {input name: array (S, *shape)}. A graph with one input also accepts a single array.

    An array may omit the model's batch axis of 1, and a single sample may omit the sample axis as well. Raises
    InputError if names, shapes or types do not fit the graph, or if a value is not finite or exceeds MAX_REAL.
    """
    if not isinstance(inputs, Mapping):
        if len(graph.inputs) != 1:
            reason = f"the model has {len(graph.inputs)} inputs: {', '.join(graph.inputs)}"
            raise InputError("inputs", reason, "give each by name")
        inputs = {graph.inputs[0]: inputs}
    if set(inputs) != set(graph.inputs):
        raise InputError("inputs", f"got {sorted(inputs)} but the model takes {sorted(graph.inputs)}")
    checked = {name: _samples(graph.tensors[name], np.asarray(inputs[name])) for name in graph.inputs}
    counts = {name: len(array) for name, array in checked.items()}
    if len(set(counts.values())) > 1:
        raise InputError("inputs", f"have different numbers of samples: {counts}")
    return checked


def count_of(samples: Mapping[str, Array]) -> int:
    """Return the number of samples: the size of the first axis of any value."""
    return len(next(iter(samples.values())))


def _samples(tensor: Tensor, array: Array) -> Array:
    where = f"input '{tensor.name}'"
    shapes = [tensor.shape] + ([tensor.shape[1:]] if tensor.shape[:1] == (1,) else [])
    if array.shape in shapes:
        array = array[None]
    if array.shape[1:] not in shapes or array.shape[0] == 0:
        remedy = f"give a sample of shape {list(shapes[-1])}, or N stacked"
        raise InputError(where, f"has the shape {list(array.shape)}", remedy)
    if array.dtype != tensor.dtype:
        quant = f" (scale {tensor.scale:.9g}, zero point {tensor.zero_point})" if tensor.quant else ""
        raise InputError(where, f"is {array.dtype}", f"give {tensor.dtype} values{quant}")
    wide = np.promote_types(array.dtype, np.float32) if array.dtype.kind == "f" else array.dtype
    # Comparisons with NaN are false, so `not` finds NaN as well.
    if array.dtype.kind == "f" and not (np.abs(array.astype(wide, copy=False)) <= MAX_REAL).all():
        raise InputError(where, f"holds NaN, infinity or a magnitude above {MAX_REAL:g}", "give finite values")
    return array.reshape(array.shape[0], *tensor.shape)


def run(
    graph: Graph,
    inputs: Array | Mapping[str, Array],
    rounding: str | None = None,
    observe: Observer | None = None,
    *,
    reset: bool = False,
) -> dict[str, Array]:
    """Return the outputs {name: (S, *shape)} for S samples, under a rounding mode [default: the model's own].

    In a network with states, the samples are one stream; `reset` starts every sample from the initial states. `observe`
    is called after every node with the node's Site and results, once for each block of samples.
    """
    samples = check_inputs(graph, inputs)
    rounding = rounding or graph.rounding
    parts: list[dict[str, Array]] = []
    for block in streamed(graph, samples, count_of(samples), reset):
        before = parts[-1] if parts and not reset else None
        parts.append(results(graph, {**block, **states(graph, block, before)}, rounding, observe))
    return {name: np.concatenate([part[name] for part in parts]) for name in graph.outputs}


def streamed(graph: Graph, samples: Mapping[str, Array], block: int, reset: bool) -> Iterator[dict[str, Array]]:
    """Yield blocks of `block` samples, or of one sample if the network has states and `reset` is False."""
    return blocks(samples, 1 if graph.states and not reset else block)


def blocks(samples: Mapping[str, Array], size: int) -> Iterator[dict[str, Array]]:
    """Yield the samples of {name: (S, *shape)} in blocks of `size`, in order."""
    for start in range(0, count_of(samples), size):
        yield {name: array[start : start + size] for name, array in samples.items()}


def states(graph: Graph, samples: Mapping[str, Array], before: Mapping[str, Array] | None) -> dict[str, Array]:
    """Return the states {source: (S, *shape)} after the results `before` (None: the initial states)."""
    if before is not None:
        return {state.source: before[state.result] for state in graph.states}
    count = count_of(samples)
    initial = {state.source: graph.tensors[state.initial].data for state in graph.states}
    return {name: np.repeat(data[None], count, axis=0) for name, data in initial.items() if data is not None}


def results(
    graph: Graph, values: Mapping[str, Array], rounding: str, observe: Observer | None = None
) -> dict[str, Array]:
    """Return the values of `graph.results` as {name: (S, *shape)}, given the `values` of `graph.sources`."""
    # Evaluating many samples together is faster, but the memory must hold the patch matrices of all of them.
    block = max(1, BLOCK_BYTES // widest(graph))
    parts = [run_block(graph, samples, rounding, observe) for samples in blocks(values, block)]
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run_block(graph: Graph, samples: Mapping[str, Array], rounding: str, observe: Observer | None) -> dict[str, Array]:
    """Evaluate samples together. Return the values of `graph.results`, {name: (S, *shape)}.

    `samples` has the values of `graph.sources`. Values are dropped after their last use.
    """
    mode = rounding_mode(rounding)
    values: dict[str, Array] = dict(samples)
    # Later nodes overwrite the entries of earlier nodes.
    last_use = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    kept = set(graph.results)
    for index, site in enumerate(graph.sites()):
        results = _evaluated(graph, site, values, mode)
        values.update(zip(site.node.outputs, results, strict=True))
        if observe:
            observe(site, results)
        for name in site.node.inputs:
            if last_use[name] == index and name not in kept:
                values.pop(name, None)
    count = count_of(samples)
    # A result that does not depend on inputs was computed once: repeat it for each sample.
    outputs = {name: value_of(graph, values, name) for name in graph.results}
    return {
        name: np.broadcast_to(array, (count, *array.shape[1:])) for name, array in outputs.items() if array is not None
    }


def value_of(graph: Graph, values: Mapping[str, Array], name: str) -> Array | None:
    """Return a tensor with a sample axis (constants: of size 1), or None if it is absent or not yet computed."""
    if not name or name in values:
        return values.get(name)
    data = graph.tensors[name].data
    return None if data is None else data[None]


def widest(graph: Graph) -> int:
    """Return the bytes of the largest tensor or im2col matrix of one sample, as float32."""
    size = 1
    for site in graph.sites():
        columns = max((1, *site.output.shape[-1:]))
        size = max(size, site.output.size, site.node.op.macs(site) // columns)
    return 4 * size


def run_node(graph: Graph, name: str, values: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """Return the reference outputs of node `name`, {tensor: (S, *shape)}, given the `values` of its inputs."""
    node = graph.node(name)
    results = _evaluated(graph, graph.site(node), values, rounding_mode(rounding))
    return dict(zip(node.outputs, results, strict=True))


def _evaluated(graph: Graph, site: Site, values: Mapping[str, Array], rounding: Rounding) -> tuple[Array, ...]:
    return site.node.op.evaluate(site, [value_of(graph, values, name) for name in site.node.inputs], rounding)
