"""The engine: state machines, loaders, paged stores, compute unit and the way of results, connected.

In every cycle in which no access misses, `waiting` is not set and the PS does not hold the engine, the current state
makes a step. What was read or summed before goes on to its register; a complete block is in its store after
support.drain() cycles.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import after, drive
from tilewright.targets.zynq.config import FACTORS, LANES, STORES, Config
from tilewright.targets.zynq.gateware import requantiser, support
from tilewright.targets.zynq.gateware.loader import ConvLoader, FcLoader, field
from tilewright.targets.zynq.gateware.paging import Ahead, Paging
from tilewright.targets.zynq.gateware.pool import Pool
from tilewright.targets.zynq.gateware.results import Results
from tilewright.targets.zynq.gateware.states import Stage, States, Step
from tilewright.targets.zynq.gateware.stores import OperandStore
from tilewright.targets.zynq.gateware.unit import ComputeUnit
from tilewright.targets.zynq.isa.layer import LAYOUT

#: The stores that the PS fills, and the width of their words in bits.
OPERANDS = {"data": 8, "weight": 8, "bias": 32}


class Engine(wiring.Component):
    """The engine behind its registers. `start` runs the layer of `descriptor`, which is stable from 4 cycles before on.

    `waiting`: the engine requests that the PS moves block `block` of store number `store`, to DDR if `write` is set.
    The PS pulses `done` after that. With two frames, the PS sets `job` and waits for `ready` instead (paging.Ahead).
    `hold` stops the engine too. `idle`: no layer runs. `interrupt`: the engine waits (is ready) or is idle.

    The PS's port moves one beat of store number `page_store` per cycle: `page_write` writes `page_data`; `page_result`
    is the beat of the result store that was addressed in the cycle before. `factor_write` sets a word of the
    requantisation factors (results.py). `moves`, `stage`, `step`, `lane` show what the engine does.
    """

    def __init__(self, config: Config) -> None:
        support.require(config)
        self.config, self.beat = config, 8 * support.beat_bytes(config)
        lines = max(config.block_bytes(store) * 8 // self.beat for store in STORES)
        super().__init__(
            {
                "descriptor": In(LAYOUT.bits),
                **{name: In(1) for name in ("start", "hold", "done", "page_write", "factor_write")},
                **{name: Out(1) for name in ("waiting", "write", "idle", "moves", "interrupt")},
                "store": Out(2),
                "job": In(2),
                "ready": Out(1),
                "block": Out(config.block_bits),
                "page_store": In(2),
                "page_address": In(range(max(2, lines))),
                "page_data": In(self.beat),
                "page_result": Out(self.beat),
                "factor_address": In(range(2 * FACTORS)),
                "factor_data": In(32),
                "stage": Out(Stage),
                "step": Out(Step),
                "lane": Out(range(LANES + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        fields = self._fields(m)
        m.submodules.states = states = States(config)
        m.submodules.conv_loader = conv = ConvLoader(config)
        m.submodules.fc_loader = fc = FcLoader(config)
        m.submodules.pool = pool = Pool(config)
        m.submodules.unit = unit = ComputeUnit()
        m.submodules.results = results = Results(config, self.beat)
        ahead = config.frames > 1
        m.submodules.paging = paging = Ahead() if ahead else Paging(config)
        for part in (conv, fc, pool, results):
            own = [name for name in part.signature.members if name in fields]
            m.d.comb += [part.start.eq(self.start), *(getattr(part, name).eq(fields[name]) for name in own)]
        for loader, mine in ((conv, ~states.is_fc), (fc, states.is_fc)):
            steps = ("next_lane", "next_iteration", "next_sum")
            m.d.comb += [getattr(loader, name).eq(getattr(states, name) & mine) for name in steps]
        m.d.comb += [
            *drive(
                self,
                interrupt=(self.ready if ahead else self.waiting) | self.idle,
                moves=~paging.stalls & ~self.hold & ~self.idle,
                idle=(states.stage == Stage.IDLE) | (states.stage == Stage.FLUSH) & states.flushed,
            ),
            *(getattr(self, name).eq(getattr(states, name)) for name in ("stage", "step", "lane")),
            *drive(
                states,
                start=self.start,
                kind=fields["kind"],
                moves=self.moves,
                complete=Mux(states.is_fc, fc.complete, conv.complete),
                last=Mux(states.is_fc, fc.last, conv.last),
                short=fc.short,
                pool_last=pool.last,
                flushed=~results.leaves,
            ),
        ]
        # Operands: each store is read at the place that the current loader gives.
        stores = self._stores(m, paging)
        column = Signal(16)
        m.d.comb += column.eq(Mux(states.is_fc, fc.column, conv.column))
        used = self._requests(m, states, (conv, fc, pool), stores, column)
        bias = stores["bias"].read
        # They arrive a cycle later, in the unit's lanes with their zero points subtracted, or in the pool.
        for name, letter in (("data", "x"), ("weight", "w")):
            read = stores[name].read
            code = Mux(fields[f"{letter}_signed"], read.data.as_signed(), read.data)
            m.d.comb += getattr(unit, name).eq(Mux(used[name], code - fields[f"z{letter}"], 0))
        m.d.sync += [*drive(unit, fill=states.next_lane, lane=states.lane), pool.arrives.eq(pool.next)]
        m.d.comb += drive(unit, take=states.take, clear=self.start)
        m.d.comb += drive(pool, next=self.moves & states.elements, word=stores["data"].read.data)
        # The accumulator begins with the bias.
        acc, base, loads = Signal(signed(requantiser.BITS)), Signal(signed(requantiser.BITS)), Signal()
        m.d.sync += loads.eq(self.moves & bias.en)
        with m.If(loads):
            m.d.sync += base.eq(bias.data)
        begin = after(m, base, 2 + config.lat_use)  # the next sum's bias may have arrived since the last request
        with m.If(states.accumulates):
            m.d.sync += acc.eq(Mux(states.begins, begin, acc) + unit.sum)
        m.d.comb += drive(results, sum=acc, column=column)
        self._results(m, states, pool, results)
        self._pages(m, states, pool, results, paging)
        return m

    def _requests(
        self, m: Module, states: States, parts: tuple[Any, ...], stores: dict[str, OperandStore], column: Value
    ) -> dict[str, Signal]:
        """Read each store at the place that the current loader gives; return whether the words that arrive are used."""
        (conv, fc, pool), config, ahead = parts, self.config, self.config.frames > 1
        used = {name: Signal(name=f"{name}_used") for name in ("data", "weight")}
        for name, is_used in used.items():
            read, chosen = stores[name].read, dict[str, Any]()
            for place in ("block", "offset", "used", "needed", "more", "kept"):
                chosen[place] = Mux(
                    states.is_fc, getattr(getattr(fc, name), place), getattr(getattr(conv, name), place)
                )
                if name == "data":
                    chosen[place] = Mux(states.elements, getattr(pool.data, place), chosen[place])
            asks = states.requests | states.elements if name == "data" else states.requests
            m.d.comb += drive(read, block=chosen["block"], offset=chosen["offset"])
            m.d.comb += read.en.eq(asks & chosen["needed"])
            m.d.sync += is_used.eq(chosen["used"])
            if ahead:
                m.d.comb += drive(stores[name], more=chosen["more"], kept=chosen["kept"])
                ended = states.is_fc & (states.step == Step.WRITE)
                m.d.comb += stores[name].begins.eq((states.step == Step.REQUEST) | states.elements | ended)
        bias = stores["bias"].read
        m.d.comb += drive(bias, en=states.requests & states.first, block=column >> config.bias_bits, offset=column)
        if ahead:
            m.d.comb += stores["bias"].begins.eq(bias.en)
        return used

    def _results(self, m: Module, states: States, pool: Pool, results: Results) -> None:
        """Connect the way of results to the states, the pool and the PS's port."""
        m.d.comb += [
            *drive(
                results,
                writes=states.writes,
                pools=pool.next & pool.gives,
                pool_result=pool.result,
                last=Mux(states.elements, pool.last, states.last),
                ends=states.ends,
                page_address=self.page_address,
            ),
            self.page_result.eq(results.page_result),
            *(
                getattr(results, f"factor_{name}").eq(getattr(self, f"factor_{name}"))
                for name in ("address", "data", "write")
            ),
        ]

    def _pages(self, m: Module, states: States, pool: Pool, results: Results, paging: Paging | Ahead) -> None:
        """Connect the page requests to the results and to the PS."""
        m.d.comb += [paging.done.eq(self.done), results.done.eq(paging.result_done)]
        if isinstance(paging, Ahead):
            # A group that begins a result block waits for a frame; an element of a pool does if it completes a result.
            begins = states.requests & states.first | states.elements & pool.gives
            m.d.comb += [
                *drive(paging, result_miss=results.full & begins, result_ready=results.leaves, job=self.job),
                self.ready.eq(paging.ready),
            ]
            return
        m.d.comb += [
            *drive(paging, result_miss=results.full, result_block=results.block, hold=self.hold),
            *(getattr(self, name).eq(getattr(paging, name)) for name in ("waiting", "store", "block", "write")),
        ]

    def _fields(self, m: Module) -> dict[str, Any]:
        """Return a signal for each field of the descriptor."""
        found = dict[str, Any]()
        for spec in LAYOUT.fields:
            at = LAYOUT.offsets[spec.name]
            found[spec.name] = Signal(field(spec.name), name=spec.name)
            m.d.comb += found[spec.name].eq(self.descriptor[at : at + spec.width])
        return found

    def _unconnected(self) -> dict[str, Any]:
        """Return the stores that the PS fills, by name."""
        config = self.config
        bits = {name: int(getattr(config, f"{name}_bits")) for name in OPERANDS}
        return {
            name: OperandStore(bits[name], width, config.block_bits, self.beat, config.frames)
            for name, width in OPERANDS.items()
        }

    def _stores(self, m: Module, paging: Paging | Ahead) -> dict[str, Any]:
        """Add the stores that the PS fills, connected to its port and to the page requests."""
        stores = self._unconnected()
        for name, store in stores.items():
            m.submodules[f"{name}_store"] = store
            m.d.comb += [
                *drive(
                    store,
                    address=self.page_address,
                    data=self.page_data,
                    write=self.page_write & (self.page_store == STORES.index(name)),
                    arrived=getattr(paging, f"{name}_done"),
                    start=self.start,
                ),
                getattr(paging, f"{name}_miss").eq(store.read.miss),
            ]
            if isinstance(paging, Ahead):
                m.d.comb += [store.moves.eq(self.moves), getattr(paging, f"{name}_ready").eq(store.ready)]
            else:
                m.d.comb += getattr(paging, f"{name}_block").eq(store.read.block)
        return stores
