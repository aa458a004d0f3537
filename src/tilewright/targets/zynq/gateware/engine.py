"""The engine: state machines, loaders, paged stores, compute unit and the path of results, with their connections.

The state machine advances in each cycle, except when an access misses, when the engine waits, and when the PS holds the
engine. The pipeline of words and sums never stops. A complete result block is in its store after drain() cycles.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.errors import ConfigError, MachineError
from tilewright.hdl.parts import Part, add, after, drive, flags, ports
from tilewright.targets.zynq.config import FACTORS, LANES, STORES, Config
from tilewright.targets.zynq.gateware.loader import DESCRIPTOR, ConvLoader, FcLoader, operand_of
from tilewright.targets.zynq.gateware.results import BITS, FACTOR_PORTS, LATENCY, Results, ResultWriter
from tilewright.targets.zynq.gateware.states import Stage, States, Step, late
from tilewright.targets.zynq.gateware.stores import Ahead, OperandStore, Paging, Store
from tilewright.targets.zynq.gateware.unit import SUMMED, ComputeUnit, Pool
from tilewright.targets.zynq.isa.image import LayerImage

#: For each key with a single supported value: the value, and the missing part that other values would need.
BATCH = {"fc_batch": (1, "an accumulator for each sample")}
DOCUMENTED = {
    "banked": (0, "a window buffer, because the ports of a store do not give all operands of an iteration (window=1)"),
    "outputs": (1, "a compute unit for several sums, and a window buffer (window=1)"),
    "macs_per_dsp": (1, "a compute unit for several sums, and a window buffer (window=1)"),
    **BATCH,
}
#: The largest width of the PS's port with `window` in bytes. A line of weights (144 bytes) must consist of whole beats.
WIDEST = 16


def drain(config: Config) -> int:
    """Return the number of cycles after which the last result of a complete block is stored."""
    if config.window:
        return SUMMED + config.outputs + LATENCY  # up to the last result of the group
    return LATENCY + late(config) + 1


def beat_bytes(config: Config) -> int:
    """Return the width of the PS's port in bytes: the power of two that is at least `axi_bytes` and 4."""
    return max(4, 1 << (config.axi_bytes - 1).bit_length())


def require(config: Config) -> None:
    """Raises ConfigError, with the first unsupported key, if the gateware does not support a configuration."""
    for key, (value, needed) in (BATCH if config.window else DOCUMENTED).items():
        if (actual := getattr(config, key)) != value:
            raise ConfigError(
                "zynq gateware",
                f"{key}={actual} has no gateware: it needs {needed}",
                f"set {key}={value}, or use the simulator (docs/gateware-zynq.md says why)",
            )
    if config.window and beat_bytes(config) > WIDEST:
        reason = (
            f"axi_bytes={config.axi_bytes} has no gateware with window=1: a line of weights is nine beats of {WIDEST}"
        )
        raise ConfigError("zynq gateware", reason, f"set axi_bytes={WIDEST} or less")
    for store in STORES:
        if config.block_bytes(store) < beat_bytes(config):
            reason = f"a {store} block has {config.block_bytes(store)} bytes, less than one transfer of the PS"
            raise ConfigError("zynq gateware", reason, f"set {store}_bits higher, or axi_bytes lower")
    least = drain(config) + 3  # 3: request, last beat, `done`
    if config.handshake < least:
        reason = f"handshake={config.handshake} is too short: results reach their store up to {least} cycles later"
        raise ConfigError("zynq gateware", reason, f"set handshake={least} or more")


def require_layer(name: str, image: LayerImage) -> None:
    """Raises MachineError if only the simulator, not the gateware, can run a layer."""
    if image.layer.channels > FACTORS:
        reason = f"has {image.layer.channels} output channels; the gateware holds {FACTORS} requantisation factors"
        raise MachineError(f"layer '{name}'", reason, "split the layer")
    if (image.factor < 0).any():
        raise MachineError(f"layer '{name}'", "has a negative requantisation factor", "negate its weights and bias")
    if image.layer.config.window and image.layer.channels:
        for operand in ("x", "w"):
            low, high = (-128, 127) if image.layer[f"{operand}_signed"] else (0, 255)
            if not low <= (zero := image.layer[f"z{operand}"]) <= high:
                reason = f"has z{operand}={zero}; with window=1 the gateware takes zero points within {low}..{high}"
                raise MachineError(
                    f"layer '{name}'", reason, "quantise the tensor so that its zero point is in this range"
                )


#: The word width in bits of each store that the PS fills.
OPERANDS = {"data": 8, "weight": 8, "bias": 32}


class Engine(Part):
    """The engine without its AXI4-Lite registers.

    A pulse of `start` runs the layer of `descriptor`, which must be stable for the four cycles before the pulse.
    """

    def __init__(self, config: Config) -> None:
        # While `waiting` is 1, the PS must move block `block` of store number `store` (to DDR if `write` is 1), and
        # then pulse `done`. With two frames, the PS sets `job`, waits for `ready`, moves the block and pulses `done`
        # (stores.Ahead). The input `hold` stops the engine. `idle` is 1 if no layer runs. `interrupt` is 1 if the
        # engine is idle, waits for a page, or (with two frames) is ready for a page.
        #
        # The PS's port accesses one beat of store number `page_store` per cycle: `page_write` writes `page_data`, and
        # `page_result` is the beat of the result store at the address of the previous cycle. `factor_write` writes a
        # word of the requantisation factors (results.py). `moves`, `stage`, `step` and `lane` show the state of the
        # engine.
        require(config)
        self.config = config
        self.beat = 8 * beat_bytes(config)
        self.ahead = config.frames > 1
        lines = max(config.block_bytes(store) * 8 // self.beat for store in STORES)
        super().__init__(
            descriptor=In(DESCRIPTOR),
            **flags(In, "start", "hold", "done", "page_write", "factor_write"),
            **flags(Out, "waiting", "write", "idle", "moves", "interrupt"),
            store=Out(2),
            job=In(2),
            ready=Out(1),
            block=Out(config.block_bits),
            page_store=In(2),
            page_address=In(range(max(2, lines))),
            page_data=In(self.beat),
            page_result=Out(self.beat),
            factor_address=In(range(2 * FACTORS)),
            factor_data=In(32),
            stage=Out(Stage),
            step=Out(Step),
            lane=Out(range(LANES + 1)),
        )

    def define(self, m: Module) -> None:
        config = self.config
        common = {"start": self.start, "layer": self.descriptor}
        states = States(config)
        steps = ports(states, "next_lane", "next_iteration", "next_sum")
        conv_steps = {name: step & ~states.is_fc for name, step in steps.items()}
        fc_steps = {name: step & states.is_fc for name, step in steps.items()}
        conv = add(m, "conv_loader", ConvLoader(config), **common, **conv_steps)
        fc = add(m, "fc_loader", FcLoader(config), **common, **fc_steps)
        pool = add(m, "pool", Pool(config), **common, next=self.moves & states.elements)
        results = Results(config, self.beat)
        paging: Paging | Ahead = Ahead(config) if self.ahead else Paging(config)
        add(m, "paging", paging)
        add(
            m,
            "states",
            states,
            start=self.start,
            kind=common["layer"].kind,
            moves=self.moves,
            complete=Mux(states.is_fc, fc.complete, conv.complete),
            last=Mux(states.is_fc, fc.last, conv.last),
            short=fc.short,
            pool_last=pool.last,
            flushed=~results.leaves,
        )
        m.d.comb += drive(
            self,
            **ports(states, "stage", "step", "lane"),
            interrupt=(self.ready if self.ahead else self.waiting) | self.idle,
            moves=~paging.stalls & ~self.hold & ~self.idle,
            idle=(states.stage == Stage.IDLE) | (states.stage == Stage.FLUSH) & states.flushed,
        )
        # The loader of the current layer supplies an address for each store.
        stores = self._stores(m, paging)
        column = Signal(16)
        m.d.comb += column.eq(Mux(states.is_fc, fc.column, conv.column))
        used = self._requests(m, states, (conv, fc, pool), stores, column)
        # The operands arrive one cycle later, in the unit's lanes or in the pool.
        unit = self._unit(m, states, stores, used)
        m.d.sync += pool.arrives.eq(pool.next)
        m.d.comb += pool.word.eq(stores["data"].read.data)
        acc = self._accumulator(m, states, unit, stores["bias"].read)
        add(
            m,
            "results",
            results,
            **common,
            **ports(states, "writes", "ends"),
            sum=acc,
            column=column,
            pools=pool.next & pool.gives,
            last=Mux(states.elements, pool.last, states.last),
        )
        # A sum, or a pool's element that completes a result, waits for a free frame if it begins a result block.
        begins = states.requests & states.first | states.elements & pool.gives
        self._leave(m, pool, results, paging, results.full & begins if self.ahead else results.full)

    def _unit(self, m: Module, states: States, stores: dict[str, Any], used: dict[str, Signal]) -> ComputeUnit:
        """Add the compute unit. Its operands are the words of the stores minus their zero points."""
        operands = {}
        for name, letter in (("data", "x"), ("weight", "w")):
            word = stores[name].read.data
            code = Mux(self.descriptor[f"{letter}_signed"], word.as_signed(), word)
            operands[name] = Mux(used[name], code - self.descriptor[f"z{letter}"], 0)
        unit = add(m, "unit", ComputeUnit(), **operands, take=states.take, clear=self.start)
        m.d.sync += drive(unit, fill=states.next_lane, lane=states.lane)
        return unit

    def _accumulator(self, m: Module, states: States, unit: ComputeUnit, bias: Any) -> Signal:
        acc = Signal(signed(BITS))
        base = Signal(signed(BITS))
        with m.If(after(m, self.moves & bias.en, 1)):
            m.d.sync += base.eq(bias.data)
        # Delay the bias as well, because the bias of the next sum may arrive before this sum begins.
        begin = after(m, base, 2 + self.config.lat_use)
        with m.If(states.accumulates):
            m.d.sync += acc.eq(Mux(states.begins, begin, acc) + unit.sum)
        return acc

    def _requests(
        self, m: Module, states: States, parts: tuple[Any, ...], stores: dict[str, Any], column: Value
    ) -> dict[str, Signal]:
        """Read each store at the current loader's address. Return the signals that say whether the words are used."""
        conv, fc, pool = parts
        used = {name: Signal(name=f"{name}_used") for name in ("data", "weight")}
        for name, is_used in used.items():
            store = stores[name]
            asks = states.requests
            place: Any = Mux(states.is_fc, getattr(fc, name).as_value(), getattr(conv, name).as_value())
            if name == "data":
                place = Mux(states.elements, pool.data.as_value(), place)
                asks = asks | states.elements
            place = operand_of(self.config, name)(place)
            m.d.comb += drive(store.read, block=place.block, offset=place.offset, en=asks & place.needed)
            m.d.sync += is_used.eq(place.used)
            if self.ahead:
                ended = states.is_fc & (states.step == Step.WRITE)
                begins = (states.step == Step.REQUEST) | states.elements | ended
                m.d.comb += drive(store, more=place.more, kept=place.kept, begins=begins)
        bias = stores["bias"]
        reads = states.requests & states.first
        m.d.comb += drive(bias.read, en=reads, block=column >> self.config.bias_bits, offset=column)
        if self.ahead:
            m.d.comb += bias.begins.eq(reads)
        return used

    def _leave(self, m: Module, pool: Pool, results: ResultWriter, paging: Paging | Ahead, miss: Value) -> None:
        """Connect the path of results to the pool and the PS. At `miss`, the engine waits for the result block."""
        m.d.comb += drive(results, **ports(self, "page_address", *FACTOR_PORTS))
        m.d.comb += drive(results, pool_result=pool.result, done=paging.result.done)
        m.d.comb += drive(paging.result, miss=miss, ready=results.leaves)
        m.d.comb += self.page_result.eq(results.page_result)
        m.d.comb += paging.done.eq(self.done)
        if isinstance(paging, Ahead):
            m.d.comb += [paging.job.eq(self.job), self.ready.eq(paging.ready)]
        elif isinstance(results, Results):
            m.d.comb += [paging.result.block.eq(results.block), paging.hold.eq(self.hold)]
            m.d.comb += drive(self, **ports(paging, "waiting", "store", "block", "write"))

    def _store(self, name: str) -> Store:
        config = self.config
        bits = getattr(config, f"{name}_bits")
        return OperandStore(bits, OPERANDS[name], config.block_bits, self.beat, config.frames)

    def _stores(self, m: Module, paging: Paging | Ahead) -> dict[str, Any]:
        """Add the stores that the PS fills, connected to the PS's port and to the page requests."""
        stores: dict[str, Any] = {name: self._store(name) for name in OPERANDS}
        common = {"address": self.page_address, "data": self.page_data, **ports(self, "start", "moves")}
        for name, store in stores.items():
            written = self.page_write & (self.page_store == STORES.index(name))
            add(m, f"{name}_store", store, **common, write=written)
            wiring.connect(m, store.pages, getattr(paging, name))
        return stores
