"""Compile a network: consecutive supported nodes become one launch, and all other nodes run on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.errors import ConfigError, ModelError
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Site
from tilewright.graph.rounding import Rounding, rounding_mode
from tilewright.graph.tensor import INT4
from tilewright.program.program import HostStep, Launch, Program, grouped
from tilewright.targets.bm1684x.compiler.build import build, build_in_parts, fits
from tilewright.targets.bm1684x.compiler.codes import add, join, rescale
from tilewright.targets.bm1684x.compiler.layer import Layer, Refused
from tilewright.targets.bm1684x.compiler.linear import average, linear, maximum, mean
from tilewright.targets.bm1684x.compiler.plan import DoesNotFit
from tilewright.targets.bm1684x.compiler.real import real
from tilewright.targets.bm1684x.compiler.tiles import WORD_BYTES
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import LARGEST

RULES = dict.fromkeys((ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected), linear)
RULES |= {ops.Quantize: rescale, ops.MaxPool2D: maximum, ops.AveragePool2D: average, ops.Mean: mean}
NAME = "bm1684x"
#: ONNX operators that only use the order of the input's elements, not the input's shape.
PRODUCTS = ("Gemm", "MatMul")
#: Types of quantised values.
CODES = ("int8", "uint8")
#: If the layers do not fit into local memory, the compiler compares ways to split them. It tries at most WAYS splits
#: that run the first layers in parts.
WAYS = 3


def lower(site: Site, mode: Rounding, config: Config) -> Layer | str:
    """Return the layer for a node, or the reason why the node runs on the host instead."""
    try:
        return _lower(site, mode, config)
    except Refused as refused:
        return str(refused)
    except ModelError as error:  # no rule supports the scale factor
        return error.reason


def _lower(site: Site, mode: Rounding, config: Config) -> Layer:
    op = site.node.op
    tensors = [tensor for tensor in (*site.inputs, *site.outputs) if tensor is not None]
    if any(tensor.code_type == INT4 for tensor in tensors):
        raise Refused(f"{op.label} of {INT4} is not supported; of {' and '.join(CODES)} it is")
    if (largest := max((extent for tensor in tensors for extent in tensor.shape), default=0)) > LARGEST:
        raise Refused(f"an extent of {largest} is not supported; the largest is {LARGEST}")
    if isinstance(op, ops.OnnxOp):
        return real(site, config)
    if isinstance(op, ops.Concat | ops.Add):
        shapes = tuple(_stored(site, index) for index in range(len(site.inputs)))
        return (join if isinstance(op, ops.Concat) else add)(site, shapes, mode)
    for kind, rule in RULES.items():
        if isinstance(op, kind):
            return rule(site, _stored(site, 0), mode)
    raise Refused(f"the bm1684x compiler has no rule for {op.label}")


def _stored(site: Site, index: int) -> SampleFormat:
    tensor = site.input(index)
    if tensor.data is not None:
        raise Refused(f"the constant operand '{tensor.name}' is not supported; only weights and bias are constant")
    if tensor.dtype not in CODES:
        raise Refused(f"{site.node.op.label} of {tensor.dtype} is not supported; of {' and '.join(CODES)} it is")
    if len(tensor.shape) == 4 and tensor.shape[0] != 1:
        raise Refused(f"a batch of {tensor.shape[0]} in the model is not supported; batch=N runs N samples")
    return SampleFormat.of(tensor)


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """Return the compiled program of a network. Raises ConfigError if `config.eu_bytes` is not WORD_BYTES (64)."""
    if config.eu_bytes != WORD_BYTES:
        raise ConfigError("bm1684x config", f"eu_bytes is {config.eu_bytes}; networks need {WORD_BYTES}")
    mode = rounding_mode(rounding)
    refused: dict[str, str] = {}  # nodes that do not fit into local memory, with the reasons
    # A node that does not fit falls back to the host. This splits its launch, and may make an omitted reshape
    # necessary, so lowering starts again. Each round refuses at least one more node, so the loop ends.
    while True:
        lowered = _lowered(graph, mode, config, refused)
        reads = {
            name: layer.inputs if isinstance(layer, Layer) else graph.node(name).inputs
            for name, layer in lowered.items()
        }
        steps: list[Launch | HostStep] = []
        for group in grouped(lowered):
            steps += _launches(graph, list(group.values()), reads, config) if isinstance(group, dict) else group
        hosts = [step for step in steps if isinstance(step, HostStep)]
        new = {step.node: step.reason for step in hosts if isinstance(lowered[step.node], Layer)}
        if not new:
            return Program(NAME, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))
        refused |= new


def _lowered(graph: Graph, mode: Rounding, config: Config, refused: Mapping[str, str]) -> dict[str, Layer | str]:
    by_node: dict[str, Layer | str] = dict(refused)
    # If only matrix products read the result of a reshape, the reshape is omitted, and the products read its input.
    passed_over = set()
    for node in graph.nodes:
        if isinstance(node.op, ops.Reshape) and node.outputs[0] not in graph.results:
            readers = [graph.site(reader) for reader in graph.readers.get(node.outputs[0], ())]
            # If at least one reader needs the reshaped tensor, the reshape runs, and all readers use its result.
            if readers and not any(site.node.name in refused for site in readers):
                through = {site.node.name: _through(graph, node, site, mode, config) for site in readers}
                layers = {name: layer for name, layer in through.items() if layer is not None}
                if len(layers) == len(readers):
                    by_node |= layers
                    passed_over.add(node.name)
    return {
        site.node.name: by_node.get(site.node.name) or lower(site, mode, config)
        for site in graph.sites()
        if site.node.name not in passed_over
    }


def _through(graph: Graph, reshape: Node, site: Site, mode: Rounding, config: Config) -> Layer | None:
    op = site.node.op
    if not (isinstance(op, ops.FullyConnected) or (isinstance(op, ops.OnnxOp) and op.op_type in PRODUCTS)):
        return None
    source = replace(graph.tensors[reshape.inputs[0]], quant=site.input(0).quant)
    layer = lower(Site(site.node, (source, *site.inputs[1:]), site.outputs), mode, config)
    return replace(layer, inputs=(reshape.inputs[0],)) if isinstance(layer, Layer) else None


def _launches(
    graph: Graph, layers: Sequence[Layer], reads: Mapping[str, Sequence[str]], config: Config
) -> list[Launch | HostStep]:
    def outside(some: Sequence[Layer]) -> set[str]:
        """Return the tensors that a launch must store, because another node reads them or the network returns them."""
        inside = {layer.name for layer in some}
        return {name for node, names in reads.items() if node not in inside for name in names} | set(graph.results)

    if not layers:
        return []
    try:
        return [build(layers, outside(layers), config)]
    except DoesNotFit as full:
        reason = str(full)
    # Some splits run the first layers in parts, and require that all other layers fit into a second launch. Another
    # split halves the list of layers, and each half may be split again. A single layer that does not fit even in parts
    # runs on the host.
    splits: list[list[Launch | HostStep]] = []
    for count in range(1, len(layers) + 1):
        first = layers[:count]
        rest = layers[count:]
        if len(splits) < WAYS and (not rest or fits(rest, outside(rest), config)):
            try:
                splits.append([build_in_parts(first, outside(first), config), *_launches(graph, rest, reads, config)])
            except DoesNotFit as full:
                reason = str(full)
    if len(layers) == 1:
        return splits[0] if splits else [HostStep(layers[0].name, reason)]
    half = len(layers) // 2
    halves = (layers[:half], layers[half:])
    splits.append([part for some in halves for part in _launches(graph, some, reads, config)])
    host = float("inf")  # a fallback costs more than any launch
    costs = [sum(step.meta["scheduled"] if isinstance(step, Launch) else host for step in steps) for steps in splits]
    return splits[costs.index(min(costs))]
