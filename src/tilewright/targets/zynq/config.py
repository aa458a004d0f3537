"""The parameters of one engine with their units and sources, and the number of DSP48 and BRAM36 in the engine.

The engine has four stores in block RAM: data, weight, bias and result. A store holds one or two blocks of its operand.
[D] marks what the document says (README.md), [I] our interpretation where the document is silent, [W] our own change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number, word

#: The compute unit: 9 taps x 16 channels [D].
TAPS = 9
GROUP = 16
LANES = TAPS * GROUP
STORES = ("data", "weight", "bias", "result")
#: The engine has requantisation factors for this number of channels, as doubles in 8 BRAM36 of 512 x 72 bits [I].
FACTORS = 1 << 12
FACTOR_BRAM = 8
#: The number of DSP48 in the requantiser and in address logic (by layout), counted by Yosys (docs/gateware-zynq.md).
REQUANTISATION = 8
ADDRESSES = {"rows": 3, "hwc": 1, "chw": 1}
#: The number of words per line of the stores with `window`. A line of weights serves one iteration: it fills the width
#: of 32 BRAM36 of 36 bits. A line of data does not use the parity bits.
LINE = {"data": 256, "weight": LANES}
#: The number of 16-channel groups of a pixel for which the window buffer has room.
DEEPEST = 32
#: The capacity of one BRAM36 in words of 8 bits and of 32 bits, without parity bits, and its bytes per port and cycle.
BRAM_WORDS = 4096
BRAM_BIASES = 1024
BRAM_PORT_BYTES = 4


@dataclass(frozen=True)
class Config(MachineConfig):
    """The configuration of one engine.

    Raises ConfigError if a value is out of range, if two values exclude each other, or if the engine needs more DSP48
    or BRAM36 than the chip has.
    """

    where = "zynq config"

    layout: str = word("rows", "chw", "hwc", "rows")  # word order in DDR [not in D]; rows: hwc, in blocks of rows [I]
    fc_lanes: int = number(LANES, 16, LANES)  # products per FC iteration [D]: 144 in the pseudo-code, 16 in table 3
    #: `states` has separate states for request, delay and accumulation [D]. The other values merge these states [W].
    control: str = word("states", "states", "direct", "pruned", "pipelined", only_time=True)
    lat_use: int = number(1, 0, 1)  # cycles of waiting for a sum [D]; with 0, the sum is read too early
    # 1: read all BRAM36 of a store at once, 4 bytes per port [W]; 0: 1 byte [D]
    banked: int = number(0, 0, 1, only_time=True)
    ports: int = number(1, 1, 2, only_time=True)  # ports per BRAM36 for the loader, if `banked` [W]
    # once: the lanes of all outputs are filled as fast as those of one output; full: slower
    fetch: str = word("once", "once", "full", only_time=True)
    frames: int = number(1, 1, 2)  # blocks per store: 1 [D]; 2: double buffering [W]
    resident: int = number(0, 0, 1)  # 1 (with two frames): do not load a block that is still in its store [W]
    data_bits: int = number(17, 4, 27)  # log2 of the words per block [D]; 17 uses 32 BRAM36
    weight_bits: int = number(17, 4, 27)
    result_bits: int = number(17, 4, 27)
    bias_bits: int = number(10, 1, 20)  # log2 of the biases per block, 32 bits each; 10 uses one BRAM36 [I]
    block_bits: int = number(10, 1, 20)  # the width of the block register [D]
    oc_blocking: int = number(0, 0, 1)  # 1: one sweep over the data for all kernels of a weight block [W]
    outputs: int = number(1, 1, 16)  # sums per iteration, of neighbouring positions or FC outputs [W]
    macs_per_dsp: int = number(1, 1, 2)  # 2: a DSP48 computes two int8 products with a common factor [W]
    write_behind: int = number(0, 0, 1, only_time=True)  # 1: write results while the next results are computed [W]
    #: 1: a buffer keeps the data of a position group until all kernels of a weight block have used them [W]
    window: int = number(0, 0, 1)
    axi_bytes: int = number(4, 1, 64, only_time=True)  # bytes that the PS moves per cycle [I]
    # cycles that a page service takes in addition to its transfer [I]
    handshake: int = number(500, 0, 1 << 20, only_time=True)
    fc_batch: int = number(1, 1, 64)  # samples that share one pass over the FC weights [W]
    # cycles per result for the PS to rearrange results; 0: not counted [I]
    relayout: int = number(0, 0, 1 << 10, only_time=True)
    pool_side: int = number(224, 2, 1 << 10)  # the longest row of a pool, which must fit its shift register [I]
    clock_mhz: int = number(100, 1, 1000, only_time=True)  # [I]
    dsp_budget: int = number(220, 1, 1 << 16)  # xc7z020 [D]
    bram_budget: int = number(140, 1, 1 << 16)  # xc7z020, BRAM36 [D]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_combinations()
        if self.dsp > self.dsp_budget or self.bram36 > self.bram_budget:
            bill = ", ".join(f"{name} {count}" for name, count in self.bill.items())
            reason = (
                f"takes {self.dsp} of {self.dsp_budget} DSP48 and {self.bram36} of {self.bram_budget} BRAM36: {bill}"
            )
            raise ConfigError("zynq config", reason, "use smaller blocks, fewer frames or fewer outputs")

    def _check_combinations(self) -> None:
        for broken, reason, remedy in (
            (self.fc_lanes not in (GROUP, LANES), f"fc_lanes is {self.fc_lanes}", "choose 16 or 144"),
            (
                self.lat_use == 0 and self.control in ("pruned", "pipelined"),
                f"lat_use=0 leaves out the delay state, and control={self.control} has no delay state",
                "set control=states or direct",
            ),
            (
                self.lat_use == 0 and (self.outputs > 1 or self.oc_blocking or self.fc_batch > 1),
                "lat_use=0 is supported only if outputs are computed one at a time",
                "set outputs=1, oc_blocking=0 and fc_batch=1",
            ),
            (self.ports > self.banked + 1, "ports=2 needs banked stores", "set banked=1"),
            (self.resident >= self.frames, "resident=1 needs two frames per store", "set frames=2"),
            (
                self.frames > 1 and self.layout != "rows",
                f"frames=2 prefetches blocks, whose order is not known in advance with layout={self.layout}",
                "set layout=rows",
            ),
            (
                self.oc_blocking and self.layout != "rows",
                f"oc_blocking=1 needs whole kernels in each block; layout={self.layout} splits kernels",
                "set layout=rows",
            ),
            (
                self.macs_per_dsp > self.outputs,
                "macs_per_dsp=2 needs two outputs, whose products share a DSP48",
                "set outputs=2 or more",
            ),
        ):
            if broken:
                raise ConfigError("zynq config", reason, remedy)

        if self.window:
            self._check_window()

    def _check_window(self) -> None:
        needed = {"banked": 1, "ports": 1, "fetch": "once", "frames": 2, "oc_blocking": 1, "write_behind": 1}
        for key, value in {"control": "pipelined", "fc_lanes": LANES, **needed}.items():
            if (actual := getattr(self, key)) != value:
                raise ConfigError("zynq config", f"window=1 needs {key}={value}, not {actual}", f"set {key}={value}")
        for store, words in LINE.items():
            if self.block_words(store) < words:
                reason = f"with window=1, a {store} block must have a line of {words} words"
                raise ConfigError("zynq config", reason, f"set {store}_bits=8 or more")

    def lines(self, store: str) -> int:
        return self.block_words(store) // LINE[store]

    def block_words(self, store: str) -> int:
        """Return the number of words of a store's block. Words have 32 bits in the bias store, and 8 bits elsewhere."""
        return 1 << int(getattr(self, f"{store}_bits"))

    @property
    def bill(self) -> dict[str, int]:
        # If the chip has too few DSP48, the multipliers outside of the compute unit are made of logic.
        stores = {
            store: self.frames * -(-self.block_words(store) // (BRAM_BIASES if store == "bias" else BRAM_WORDS))
            for store in STORES
        }
        return {
            "compute unit (DSP48)": self.unit_dsp,
            "requantisation (DSP48)": 0 if self.logic else REQUANTISATION,
            "addresses (DSP48)": 0 if self.logic else ADDRESSES[self.layout] + 2 * self.resident,
            **{f"{store} store (BRAM36)": n for store, n in stores.items()},
            "requantisation factors (BRAM36)": FACTOR_BRAM,
        }

    @property
    def unit_dsp(self) -> int:
        return -(-LANES * self.outputs // self.macs_per_dsp)

    @property
    def logic(self) -> bool:
        return self.unit_dsp + REQUANTISATION + ADDRESSES[self.layout] + 2 * self.resident > self.dsp_budget

    @property
    def dsp(self) -> int:
        return sum(count for part, count in self.bill.items() if part.endswith("(DSP48)"))

    @property
    def bram36(self) -> int:
        return sum(count for part, count in self.bill.items() if part.endswith("(BRAM36)"))

    @property
    def macs_per_cycle(self) -> int:
        return LANES * self.outputs

    def fetch_bytes(self, store: str) -> int:
        return BRAM_PORT_BYTES * self.ports * self.bill[f"{store} store (BRAM36)"] if self.banked else 1

    def fill(self, fc: bool = False) -> int:
        """Return the cycles that the loader needs to fill the lanes for one iteration, with `fc` of an FC layer."""
        if self.window:
            return 1
        data = LANES
        weights = LANES
        # In a convolution, outputs share the weights; in an FC layer, outputs share the data. With `full`, the other
        # operand is fetched once per output.
        if self.fetch == "full":
            data, weights = (data, weights * self.outputs) if fc else (data * self.outputs, weights)
        return max(-(-data // self.fetch_bytes("data")), -(-weights // self.fetch_bytes("weight")))

    def iteration(self, fc: bool = False) -> int:
        """Return the cycles of an iteration, with `fc` of an FC layer: the fill of the lanes, then control states."""
        states = {"states": 2 + self.lat_use, "direct": 1 + self.lat_use, "pruned": 1, "pipelined": 0}
        return self.fill(fc) + states[self.control]

    def block_bytes(self, store: str) -> int:
        return self.block_words(store) * (4 if store == "bias" else 1)

    def transfer(self, store: str) -> int:
        """Return the cycles of one page service, in which the CPU always moves a whole block."""
        return -(-self.block_bytes(store) // self.axi_bytes) + self.handshake


#: `repaired` has a layout that avoids unnecessary loads of blocks. `literal` is the document's design by its
#: pseudo-code (144 products per FC iteration), and `literal16` is the design by its table 3 (16 products).
PRESETS: dict[str, dict[str, Any]] = {
    "repaired": {},
    "literal": {"layout": "chw"},
    "literal16": {"layout": "chw", "fc_lanes": GROUP},
    "literal-hwc": {"layout": "hwc"},
    "fast": {
        **{"control": "pipelined", "banked": 1, "window": 1, "frames": 2, "resident": 1},
        **{"weight_bits": 16, "result_bits": 16, "block_bits": 11, "oc_blocking": 1, "outputs": 3, "macs_per_dsp": 2},
        **{"write_behind": 1, "axi_bytes": 16, "handshake": 1000, "clock_mhz": 200},
    },
}
#: The document's first design, with a whole layer of VGG16 in BRAM: 2**22 words of data, 2**22 results, 2**27 weights.
#: This design does not fit the chip, so it raises ConfigError.
REFUSED: dict[str, dict[str, Any]] = {"first": {"data_bits": 22, "weight_bits": 27, "result_bits": 22, "bias_bits": 12}}
Config.presets = PRESETS | REFUSED
