"""The language: one descriptor a layer, the parameters that the PS writes before it starts the engine.

    conv_1_1 ic=3 oc=64 rows=224 cols=224 ...      one iteration an output, the lanes beyond 9 * ic are zero
    conv_other ic=64 oc=64 rows=224 cols=224 ...   ic / 16 iterations an output
    pool ic=64 rows=224 cols=224 ...               2x2, stride 2: the largest of four codes
    fc r=25088 l=4096 ...                          l outputs, each the sum of r products

Convolutions are 3x3, stride 1, same padding. ic, oc, r, l are the document's IC, OC, R, L; its S is rows * cols, rows
and columns of the layer's input. Sums are of (x - zx) * (w - zw) and a bias; `relu`: negative ones become 0. A result
is clip(round(sum * factor) + zy, low, high), rounded by `rule`; there is one factor a layer, or one an output channel.
`x_signed` and its like: the words are int8, else uint8. `..._base`: the first block of each operand in its own
address space.
"""

from __future__ import annotations

from enum import IntEnum

from tilewright.graph.rounding import RequantRule
from tilewright.program.instruction import Field, Layout
from tilewright.program.notation import InstructionSet, Names


class Kind(IntEnum):
    """The state machine that runs a layer."""

    CONV_1_1 = 0
    CONV_OTHER = 1
    POOL = 2
    FC = 3


#: Requantisation rules by number; `shift` needs integers that a descriptor does not have.
RULES: tuple[RequantRule, ...] = ("float", "double", "away", "pow2")

LAYOUT = Layout(
    "descriptor",
    (
        Field("kind", 2, doc="Kind"),
        Field("relu", 1, doc="negative sums become 0"),
        Field("rule", 3, doc="requantisation rule"),
        Field("x_signed", 1, doc="data words are int8, else uint8"),
        Field("w_signed", 1, doc="weight words are int8, else uint8"),
        Field("y_signed", 1, doc="result words are int8, else uint8"),
        Field("zx", 9, signed=True, doc="zero point of data"),
        Field("zw", 9, signed=True, doc="zero point of weights"),
        Field("ic", 16, doc="IC: input channels"),
        Field("oc", 16, doc="OC: output channels"),
        Field("rows", 12, doc="rows of the input"),
        Field("cols", 12, doc="columns of the input"),
        Field("r", 24, doc="R: inner length of FC"),
        Field("l", 16, doc="L: outputs of FC"),
        Field("zy", 9, signed=True, doc="zero point of results"),
        Field("low", 9, signed=True, doc="smallest result"),
        Field("high", 9, signed=True, doc="largest result"),
        Field("data_base", 20, doc="first block of the data"),
        Field("weight_base", 20, doc="first block of the weights"),
        Field("bias_base", 20, doc="first block of the biases"),
        Field("result_base", 20, doc="first block of the results"),
    ),
    word_bits=32,
)
_COMMON = ("x_signed", "y_signed", "low", "high", "data_base", "result_base")
_SUMS = ("relu", "rule", "w_signed", "zx", "zw", "zy", "weight_base", "bias_base")
_IMAGE = ("ic", "rows", "cols")
#: The fields that each kind of layer has; the others are 0.
OPERANDS = {
    Kind.CONV_1_1: (*_IMAGE, "oc", *_SUMS, *_COMMON),
    Kind.CONV_OTHER: (*_IMAGE, "oc", *_SUMS, *_COMMON),
    Kind.POOL: (*_IMAGE, *_COMMON),
    Kind.FC: ("r", "l", *_SUMS, *_COMMON),
}


#: The rules have names in text.
DESCRIPTORS = InstructionSet(LAYOUT, "kind", Kind, OPERANDS, names={"rule": Names(RULES)})
