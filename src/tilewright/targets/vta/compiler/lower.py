"""From a graph node to a layer with its weight tiles and what finishes it, or the reason why not."""

from __future__ import annotations

from tilewright.errors import TilewrightError
from tilewright.graph.ir import Site
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    FullyConnected,
    Linear,
    MatMul,
    MaxPool2D,
    Mean,
    Mul,
    OnnxOp,
    Op,
    Quantize,
    RealAveragePool2D,
    Upsample,
)
from tilewright.targets.vta.compiler import elementwise, pools, products
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE
from tilewright.targets.vta.compiler.linear import linear
from tilewright.targets.vta.compiler.lowered import CODE_DTYPES, Context, Lowered

#: Why the host takes an operator of another kind, or of ONNX.
REASONS = {
    "clamp": "rescales; VTA's ALU has no multiplier for it",
    "softmax": "needs exponentials and a division",
    "reshape": "moves no data",
    "pad": "moves data only",
    "concat": "moves data only",
    "dequantize": "gives real numbers",
    "transpose": "moves data only",
} | dict.fromkeys(("Softmax", "QLinearSoftmax"), "needs exponentials and a division")
REASONS |= dict.fromkeys(
    ("Sigmoid", "QLinearSigmoid", "HardSwish", "Gelu", "Erf"), "is a curve; VTA has no table of codes"
)
REASONS |= dict.fromkeys(("LayerNormalization", "SkipLayerNormalization"), "needs variances, roots and a division")
REASONS |= dict.fromkeys(("Slice", "Split", "Gather", "Resize", "DepthToSpace", "SpaceToDepth"), "moves data only")


#: The operators that VTA takes, on some machines and under some arithmetic.
TAKEN = (Linear, MatMul, AveragePool2D, MaxPool2D, Mean, RealAveragePool2D, Upsample, Add, Mul, Quantize)


def lower(site: Site, context: Context) -> Lowered | str:
    """The layer of a node, or why VTA does not take it."""
    op, config = site.node.op, context.config
    if not isinstance(op, TAKEN):
        kind = op.op_type if isinstance(op, OnnxOp) else op.kind
        if kind in REASONS:
            return f"{op.label} {REASONS[kind]}"
        return OnnxOp.real(site) or f"VTA has no operation for {op.label}"
    if isinstance(op, Add | Mean | RealAveragePool2D) and config.alu == "upstream" and not _shifts(context):
        return f"{op.label} rescales what it adds; the ALU of alu=upstream has no multiplier"
    if config.inp.width != 8 or config.wgt.width != 8:
        return f"the machine's values have {config.inp.width} bits and its weights {config.wgt.width}; the codes 8"
    x = site.input(0)
    if x.dtype not in CODE_DTYPES:
        reason = f"{op.label} of {x.dtype} ('{x.name}') is not supported"
        return reason if x.dtype.startswith("float") else f"{reason}; VTA multiplies int8"
    if x.data is not None:
        return f"the constant input '{x.name}' is not supported"
    if not isinstance(op, FullyConnected | MatMul | Add | Mul | Quantize):
        if len(x.shape) == 4 and x.shape[0] != 1:
            return f"a batch of {x.shape[0]} in the model is not supported; one image is"
        if len(x.shape) == 4 and max(x.shape[2], site.output.shape[-2]) > LARGEST_SIZE:
            return f"a row of its image is longer than the {LARGEST_SIZE} tiles of LOAD's x_stride"
    try:
        return _lowered(site, op, context)
    except TilewrightError as error:
        return error.reason


def _shifts(context: Context) -> bool:
    """Whether sums become codes by shifts, with what upstream's ALU has."""
    return context.rounding.elementwise == "pow2" and not context.config.has_parameters


def _lowered(site: Site, op: Op, context: Context) -> Lowered | str:
    if isinstance(op, Linear):
        return linear(site, op, context)
    if isinstance(op, MaxPool2D):
        return pools.maximum(site, op, context)
    if isinstance(op, AveragePool2D):
        return pools.sums(site, op, context)
    if isinstance(op, Mean | RealAveragePool2D):
        return pools.average(site, op, context)
    if isinstance(op, MatMul):
        return products.product(site, op, context)
    if isinstance(op, Upsample):
        return pools.upsample(site, op, context)
    if isinstance(op, Add):
        return elementwise.add(site, op, context)
    assert isinstance(op, Mul | Quantize)
    return elementwise.rescale(site, op, context)
