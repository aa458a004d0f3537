"""The parameters of a Gemmini machine with their units and sources, and the switches that select its semantics.

[C] marks upstream's default (ucb-bar/gemmini at 8c3f992, Configs.scala and GemminiConfigs.scala), followed by the name
of upstream's parameter. [R] marks numbers that were measured on generated RTL (docs/gemmini.md), and [I] our choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number, word

#: The size in bytes of a scratchpad element, and of an accumulator element [C].
INPUT_BYTES = 1
ACC_BYTES = 4
#: The queues of the reservation station. Each queue has a controller.
UNITS = ("load", "execute", "store")
#: The value of a switch that selects the behaviour of the key `semantics`.
FOLLOW = "semantics"


class Semantics(NamedTuple):
    """Behaviour in which the generated RTL and the functional model (ucb-bar/libgemmini at 5b1254a) differ."""

    relu: str  # when ReLU is applied to a result of the accumulator
    os_shift: str  # the output-stationary results that are shifted: `always` all, or `spad` results only
    sums: str  # the width of sums in the array: `pe_bits` (sums wrap around), or `exact`
    extra_rows: str  # memory in result rows beyond the rows of A is `kept`, or set to `zeros`
    conv_activation: str  # activations 2 and 3 of LOOP_CONV_WS are `passed` on, or replaced by `relu`
    conv_batches: str  # the register with the distance between images of an input in layout 3120
    repeats: str  # repeated pixels before the current `half`, or before row 0 (`begin`), are not written


#: Each difference was observed on both implementations. docs/gemmini.md lists the vectors that show the differences.
SEMANTICS = {
    "rtl": Semantics("before_scale", "always", "pe_bits", "kept", "passed", "batches", "half"),
    "functional": Semantics("after_scale", "spad", "exact", "zeros", "relu", "batch_size", "begin"),
}


def _switch(name: str) -> Any:
    """Declare the switch of one difference, whose values are the two behaviours and FOLLOW."""
    return word(FOLLOW, FOLLOW, *(getattr(rules, name) for rules in SEMANTICS.values()))


@dataclass(frozen=True)
class Config(MachineConfig):
    """The configuration of one machine. Raises ConfigError if values are out of range or exclude each other."""

    where = "gemmini config"

    # The number of rows and of columns of the array (DIM) [C: meshRows x tileRows]. The minimum is 4, because a 2 x 2
    # array would stall: an operation has at least 4 rows (MeshWithDelays.scala: total_rows), and the row counter of
    # such an array cannot reach 4.
    dim: int = number(16, 4, 128, power=True)
    spad_banks: int = number(4, 1, 64, power=True)  # [C: sp_banks]
    spad_rows: int = number(4096, 4, 1 << 20, power=True)  # rows per bank; a row has `dim` int8 [C: sp_capacity]
    acc_banks: int = number(2, 1, 64, power=True)  # [C: acc_banks]
    acc_rows: int = number(1024, 4, 1 << 20, power=True)  # rows in all banks; a row has `dim` int32 [C: acc_capacity]
    dma_bytes: int = number(64, 16, 512, power=True)  # largest request of the DMA [C: dma_maxbytes]
    pe_bits: int = number(20, 16, 32)  # width of sums in the array [C: spatialArrayOutputType]
    dataflow: str = word("both", "both", "ws", "os")  # [C: dataflow]; ws: weight-stationary, os: output-stationary
    normaliser: int = number(0, 0, 1)  # 1: layer normalisation, i-gelu, softmax [C: has_normalizations]
    semantics: str = word("rtl", *SEMANTICS)  # the modelled implementation; each switch below overrides one behaviour
    relu: str = _switch("relu")
    os_shift: str = _switch("os_shift")
    sums: str = _switch("sums")
    extra_rows: str = _switch("extra_rows")
    conv_activation: str = _switch("conv_activation")
    conv_batches: str = _switch("conv_batches")
    repeats: str = _switch("repeats")
    bus_bytes: int = number(16, 1, 64, power=True, only_time=True)  # bytes of a beat [C: dma_buswidth]
    reads_in_flight: int = number(16, 1, 1024, only_time=True)  # requests of the DMA reader [C: max_in_flight_mem_reqs]
    writes_in_flight: int = number(16, 1, 1024, only_time=True)  # requests of the DMA writer [C: same]
    # Entries of the reservation station [C: reservation_station_entries]. The limit is the width of the model's bit
    # masks.
    rs_load: int = number(8, 1, 63, only_time=True)
    rs_execute: int = number(16, 1, 63, only_time=True)
    rs_store: int = number(4, 1, 63, only_time=True)
    queue_load: int = number(8, 1, 64, only_time=True)  # the length of a controller's queue [C: ld_queue_length]
    queue_execute: int = number(8, 1, 64, only_time=True)  # [C: ex_queue_length]
    queue_store: int = number(2, 1, 64, only_time=True)  # [C: st_queue_length]
    memory_latency: int = number(16, 1, 1 << 16, only_time=True)  # cycles from a request to its first beat [I]
    # The revision of upstream's Chisel: 709bc56 (2023), or 8c3f992 (2025), which is in today's Chipyard (e602d917,
    # 2026-08). The revisions differ in time and in hazards.
    rtl: int = word(2025, 2023, 2025, only_time=True)
    clock_mhz: int = number(1000, 1, 10_000, only_time=True)  # [I]; upstream reports 22 nm chips at 1 GHz

    def __post_init__(self) -> None:
        super().__post_init__()
        for fails, reason, remedy in self._unbuildable():
            if fails:
                raise ConfigError(self.where, f"upstream cannot build this machine: {reason}", remedy)
        if self.acc_rows // self.acc_banks < self.dim or self.spad_rows < self.dim:
            raise ConfigError(self.where, f"a bank has fewer rows than the array ({self.dim})", "use larger banks")
        if self.row_bits > 24:
            raise ConfigError(self.where, f"a local address has {self.row_bits} bits for rows; the maximum is 24")
        if self.dma_bytes < self.bus_bytes:
            raise ConfigError(
                self.where, f"dma_bytes is {self.dma_bytes}, less than a beat ({self.bus_bytes})", "raise it"
            )

    def _unbuildable(self) -> Iterator[tuple[bool, str, str]]:
        """Yield conditions on which upstream's generator (8c3f992) fails: the reason, with its line, and the remedy."""
        for unit in UNITS:
            entries = getattr(self, f"rs_{unit}")
            reason = f"rs_{unit} is {entries}, no power of two (ReservationStation.scala:118)"
            yield bool(entries & (entries - 1)), reason, "use a power of two"
        reason = f"queue_execute is {self.queue_execute}, less than 3 (ExecuteController.scala:67)"
        yield self.queue_execute < 3, reason, "use 3 or more (5 with transposed weights)"
        most = self.all_spad_rows - 2 * self.dim
        reason = f"acc_rows is {self.acc_rows}, more than all scratchpad rows but two blocks (GemminiConfigs.scala:257)"
        yield self.acc_rows > most, reason, f"use at most {most}, or more scratchpad rows"
        # Both fail while Chisel 3.4.3 elaborates the design, without a rule of upstream's.
        yield self.rs_store < 4, f"rs_store is {self.rs_store} (Chisel fails)", "use 4 or more"
        yield self.spad_banks < 2, "spad_banks is 1 (Chisel fails)", "use 2 or more"

    @property
    def rules(self) -> Semantics:
        """The behaviour of this machine for each difference. Switches override the key `semantics`."""
        named = SEMANTICS[self.semantics]
        switches = {name: getattr(self, name) for name in Semantics._fields}
        return named._replace(**{name: value for name, value in switches.items() if value != FOLLOW})

    @property
    def all_spad_rows(self) -> int:
        return self.spad_banks * self.spad_rows

    @property
    def half(self) -> int:
        return self.all_spad_rows // 2

    @property
    def row_bits(self) -> int:
        """The number of bits of the row in a local address. In the garbage address, the next higher bit is also 1."""
        return max(self.all_spad_rows, self.acc_rows).bit_length() - 1

    @property
    def spad_blocks(self) -> int:
        """The largest number of blocks (of `dim` columns) that one mvin of int8 loads."""
        return max(1, self.dma_bytes // (self.dim * INPUT_BYTES))

    @property
    def acc_blocks(self) -> int:
        """The largest number of blocks (of `dim` columns) that one mvin of int32 loads."""
        return max(1, self.dma_bytes // (self.dim * ACC_BYTES))


#: All presets were compared with RTL runs.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "wsonly": {"dataflow": "ws", "reads_in_flight": 32, "writes_in_flight": 32},
    "dim8": {"dim": 8, "spad_rows": 1024, "acc_rows": 512},
    "dim4": {"dim": 4, "spad_rows": 512, "acc_rows": 256, "dma_bytes": 32},
}
Config.presets = PRESETS
