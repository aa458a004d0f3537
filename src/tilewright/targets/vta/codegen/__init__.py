"""VTA's compiler: graph -> layers (lower) -> plans (search) -> schedules -> instruction streams (emit)."""

from tilewright.targets.vta.codegen.compiler import compile_graph, launch_with, plan
from tilewright.targets.vta.codegen.explain import counts, explain
from tilewright.targets.vta.codegen.pack import pack, unpack

__all__ = ["compile_graph", "counts", "explain", "launch_with", "pack", "plan", "unpack"]
