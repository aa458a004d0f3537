"""The instruction set: one descriptor per layer, which the CPU (PS) writes before it starts the engine.

    conv_1_1 ic=3 oc=64 rows=224 cols=224 ...      one iteration per output; lanes beyond 9 * ic are zero
    conv_other ic=64 oc=64 rows=224 cols=224 ...   ic / 16 iterations per output
    pool ic=64 rows=224 cols=224 ...               2x2, stride 2: the largest of four codes
    fc r=25088 l=4096 ...                          l outputs, each the sum of r products

Convolutions are 3x3 with stride 1 and same padding. ic, oc, r and l are the document's IC, OC, R and L. `rows` and
`cols` are the sides of the layer's input, and the document's S is rows * cols. A sum adds products
`(x - zx) * (w - zw)` and a bias. With `relu`, negative sums become 0. A result is
`clip(round(sum * factor) + zy, low, high)`, rounded by `rule`, with one factor per layer or per output channel. With
`x_signed`, `w_signed` or `y_signed`, words of data, weights or results are int8, else uint8. A field `..._base` is the
first block of an operand. Each operand has an address space of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from tilewright.graph.rounding import RequantRule
from tilewright.program.instruction import Column, Field, InstructionSet, Layout, Names
from tilewright.targets.zynq.config import DEEPEST, GROUP, LANES, TAPS, Config


class Kind(IntEnum):
    """The kind of a layer, which selects the state machine."""

    CONV_1_1 = 0
    CONV_OTHER = 1
    POOL = 2
    FC = 3


#: The requantisation rules, by number. The rule `shift` is not supported, because it needs integer factors.
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
#: The fields that each kind of layer uses. All other fields must be 0.
OPERANDS = {
    Kind.CONV_1_1: (*_IMAGE, "oc", *_SUMS, *_COMMON),
    Kind.CONV_OTHER: (*_IMAGE, "oc", *_SUMS, *_COMMON),
    Kind.POOL: (*_IMAGE, *_COMMON),
    Kind.FC: ("r", "l", *_SUMS, *_COMMON),
}


DESCRIPTORS = InstructionSet(LAYOUT, "kind", Kind, OPERANDS, names={"rule": Names(RULES)})


@dataclass(frozen=True)
class Layer:
    """The fields of a layer's descriptor, and the configuration of its engine."""

    config: Config
    fields: Mapping[str, int]

    @classmethod
    def of(cls, columns: Mapping[str, Column], row: int, config: Config) -> Layer:
        return cls(config, {name: int(column[row]) for name, column in columns.items()})

    @cached_property
    def kind(self) -> Kind:
        return Kind(self["kind"])

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    @property
    def conv(self) -> bool:
        return self.kind in (Kind.CONV_1_1, Kind.CONV_OTHER)

    @property
    def rule(self) -> str:
        return RULES[self["rule"]]

    @property
    def positions(self) -> int:
        return self["rows"] * self["cols"]

    @property
    def depth(self) -> int:
        return -(-self["r"] // self.config.fc_lanes) if self.kind == Kind.FC else -(-self["ic"] // GROUP)

    @property
    def kernel(self) -> int:
        return self["r"] if self.kind == Kind.FC else TAPS * self["ic"]

    @property
    def stored_kernel(self) -> int:
        """The number of words of a kernel in a weight block. With `window`, a kernel has a line per iteration."""
        return LANES * self.depth if self.config.window else self.kernel

    @property
    def pixel(self) -> int:
        """The number of words per input pixel in a data block. With `window`, the number is at least 16."""
        return max(self["ic"], GROUP) if self.config.window else self["ic"]

    @property
    def channels(self) -> int:
        """The number of kernels and biases: the output channels, the FC outputs, or 0 for a pool."""
        return self["l"] if self.kind == Kind.FC else self["oc"] if self.conv else 0

    @cached_property
    def outputs(self) -> int:
        if self.kind == Kind.FC:
            return self["l"]
        return self["oc"] * self.positions if self.conv else self["ic"] * self.positions // 4

    @property
    def inputs(self) -> int:
        return self["r"] if self.kind == Kind.FC else self["ic"] * self.positions

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self["r"],) if self.kind == Kind.FC else (self["rows"], self["cols"], self["ic"])

    @property
    def samples(self) -> int:
        return self.config.fc_batch if self.kind == Kind.FC else 1

    @property
    def iterations(self) -> int:
        """The iterations of an engine that computes one output at a time: `IC/16 * S * OC`, or `R/144 * L` for FC."""
        return 0 if self.kind == Kind.POOL else self.outputs * self.depth

    @property
    def macs(self) -> int:
        """The number of multiply-accumulates per sample, excluding padding."""
        if self.conv:
            return self["ic"] * self["oc"] * (3 * self["rows"] - 2) * (3 * self["cols"] - 2)
        return self["r"] * self["l"] if self.kind == Kind.FC else 0

    @property
    def utilization(self) -> float:
        """The fraction of lanes in use over all `iterations`. A lane that multiplies padding is in use."""
        return self.outputs * self.kernel / (LANES * self.iterations) if self.iterations else 0.0

    def refusal(self) -> str:
        """Return the reason why the engine cannot run this shape, or "". (walk.refusal checks the number of blocks.)"""
        config = self.config
        if self.conv and self["ic"] > GROUP and self["ic"] % GROUP:
            return f"{self['ic']} input channels are not supported; use up to {GROUP} or a multiple of {GROUP}"
        if self.kind == Kind.POOL and (self["rows"] % 2 or self["cols"] % 2):
            return f"a 2x2 pool of {self['rows']}x{self['cols']} is not supported; its input must have even sides"
        if self.kind == Kind.POOL and self["cols"] > config.pool_side:
            return f"rows of {self['cols']} elements exceed the pool's shift register (pool_side={config.pool_side})"
        if self.conv and config.window and self.depth > DEEPEST:
            return f"{self['ic']} input channels exceed the window buffer, which holds {GROUP * DEEPEST} of a pixel"
        if self.conv and config.layout == "rows":
            words = self.pixel * self["cols"]
            if words * min(3, self["rows"]) > config.block_words("data"):
                return f"three rows of {words} words exceed a data block (data_bits={config.data_bits})"
            if self.stored_kernel > config.block_words("weight"):
                return (
                    f"a kernel of {self.stored_kernel} words exceeds a weight block (weight_bits={config.weight_bits})"
                )
        if self.conv and config.layout == "chw" and self["cols"] > config.block_words("data"):
            return f"a row of {self['cols']} words exceeds a data block (data_bits={config.data_bits})"
        return ""
