"""Networks of one node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.ops import Op
from tilewright.graph.rounding import rounding_mode
from tilewright.run import run
from tilewright.targets.vta.compiler.chain import plan_layer
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.lowered import Context
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.timing import DEFAULT


def machine(**keys: str) -> Config:
    return PRESETS["pynq"].with_overrides(keys)


def one_node(op: Op, inputs: tuple[Tensor, ...], out: Quant, dtype: str, rounding: str) -> Graph:
    """A graph of one node; `inputs` with data are constants."""
    node = Node("node", op, tuple(tensor.name for tensor in inputs), ("y",))
    result = Tensor("y", (), dtype, out)
    (shape,) = op.shapes(Site(node, inputs, (result,)))
    tensors = {tensor.name: tensor for tensor in (*inputs, Tensor("y", shape, dtype, out))}
    given = tuple(tensor.name for tensor in inputs if tensor.data is None)
    return Graph("one", tensors, (node,), given, ("y",), rounding).validate()


def plan(site: Site, config: Config) -> Plan | str:
    """The plan chosen for a node, or the reason why the host runs it."""
    found = plan_layer((site,), Context(config, rounding_mode("tflm"), DEFAULT))
    return found if isinstance(found, str) else found[1]


def quant(rng: np.random.Generator, dtype: str) -> Quant:
    """Scales that make ties now and then, zero points at the ends now and then."""
    info = np.iinfo(dtype)
    zero = int(rng.choice([info.min, 0, info.max, int(rng.integers(info.min, info.max + 1))]))
    scale = 2.0 ** int(rng.integers(-6, 1)) if rng.random() < 0.5 else float(rng.uniform(0.003, 0.4))
    return Quant((float(np.float32(scale)),), (zero,))


def codes(rng: np.random.Generator, tensor: Tensor, samples: int) -> np.ndarray:
    info = np.iinfo(tensor.dtype)
    return rng.integers(info.min, info.max + 1, (samples, *tensor.shape)).astype(tensor.dtype)


def check(graph: Graph, config: Config, rng: np.random.Generator, on_chip: bool = True) -> None:
    """Compiled, run with every check, equal to the reference."""
    program = compile_graph(graph, config, graph.rounding)
    given = {name: codes(rng, graph.tensors[name], 3) for name in graph.inputs}
    result = run(program, given)
    assert result.matches_reference
    assert not result.findings
    if on_chip:
        assert {layer.where for layer in result.layers} == {"vta"}, [layer.reason for layer in result.layers]


def seeded(count: int) -> Iterator[np.random.Generator]:
    for seed in range(count):
        print(f"seed {seed}")
        yield np.random.default_rng(seed)
