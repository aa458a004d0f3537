"""One layer on one engine: how many iterations, outputs and words, and what of it the engine cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.program.instruction import Column
from tilewright.targets.zynq.config import GROUP, LANES, TAPS, Config
from tilewright.targets.zynq.isa.descriptor import RULES, Kind


@dataclass(frozen=True)
class Layer:
    """The fields of a descriptor (isa.py), and the engine that runs it."""

    kind: Kind
    config: Config
    fields: Mapping[str, int]

    @classmethod
    def of(cls, columns: Mapping[str, Column], row: int, config: Config) -> Layer:
        fields = {name: int(column[row]) for name, column in columns.items()}
        return cls(Kind(fields["kind"]), config, fields)

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
        """S: output positions of a convolution, elements of a channel of a pool's input."""
        return self["rows"] * self["cols"]

    @property
    def depth(self) -> int:
        """Iterations that one sum takes."""
        return -(-self["r"] // self.config.fc_lanes) if self.kind == Kind.FC else -(-self["ic"] // GROUP)

    @property
    def kernel(self) -> int:
        """Weights of one output channel."""
        return self["r"] if self.kind == Kind.FC else TAPS * self["ic"]

    @property
    def channels(self) -> int:
        """Outputs that have a bias and weights of their own."""
        return self["l"] if self.kind == Kind.FC else self["oc"] if self.conv else 0

    @cached_property
    def outputs(self) -> int:
        """Results of one sample."""
        if self.kind == Kind.FC:
            return self["l"]
        return self["oc"] * self.positions if self.conv else self["ic"] * self.positions // 4

    @property
    def inputs(self) -> int:
        """Data words of one sample."""
        return self["r"] if self.kind == Kind.FC else self["ic"] * self.positions

    @property
    def samples(self) -> int:
        """Samples that one run of the layer serves."""
        return self.config.fc_batch if self.kind == Kind.FC else 1

    @property
    def iterations(self) -> int:
        """Iterations if one output is computed at a time: the document's IC/16 * S * OC and R/144 * L."""
        return 0 if self.kind == Kind.POOL else self.outputs * self.depth

    @property
    def macs(self) -> int:
        """Products of one sample whose taps lie inside the image."""
        if self.conv:
            return self["ic"] * self["oc"] * (3 * self["rows"] - 2) * (3 * self["cols"] - 2)
        return self["r"] * self["l"] if self.kind == Kind.FC else 0

    @property
    def utilization(self) -> float:
        """Products over what the lanes could do in these iterations, padding taps counted."""
        return self.outputs * self.kernel / (LANES * self.iterations) if self.iterations else 0.0

    def refusal(self) -> str:
        """Why this engine cannot run a layer of this shape; empty where it can. walk.refusal asks for blocks too."""
        config = self.config
        if self.conv and self["ic"] > GROUP and self["ic"] % GROUP:
            return f"{self['ic']} input channels are neither up to {GROUP} nor a multiple of {GROUP}"
        if self.kind == Kind.POOL and (self["rows"] % 2 or self["cols"] % 2):
            return f"a 2x2 pool of {self['rows']}x{self['cols']} has an odd side"
        if self.kind == Kind.POOL and self["cols"] > config.pool_side:
            return f"rows of {self['cols']} exceed the pool's shift register, pool_side={config.pool_side}"
        if self.conv and config.layout == "rows":
            words = self["ic"] * self["cols"]
            if words * min(3, self["rows"]) > config.block_words("data"):
                return f"three rows of {words} words exceed a data block, data_bits={config.data_bits}"
            if self.kernel > config.block_words("weight"):
                return f"a kernel of {self.kernel} words exceeds a weight block, weight_bits={config.weight_bits}"
        if self.conv and config.layout == "chw" and self["cols"] > config.block_words("data"):
            return f"a row of {self['cols']} words exceeds a data block, data_bits={config.data_bits}"
        return ""
