"""VTA's compiler: graph -> layers (lower) -> plans (search) -> schedules -> instruction streams (emit)."""

from tilewright.targets.vta.codegen.compiler import compile_graph, plan, supports
from tilewright.targets.vta.codegen.explain import counts, explain
from tilewright.targets.vta.codegen.pack import pack, unpack

__all__ = ["compile_graph", "counts", "explain", "pack", "plan", "supports", "unpack"]
