"""The engine with `window=1`, connected: stores with lines, the window buffer, a unit for several outputs.

It has the ports and the protocol of Engine with two frames. In every cycle in which no access misses, its states make a
step. An iteration's operands follow a cycle later, and their sums sums.LATENCY cycles after these.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.utils import ceil_log2

from tilewright.hdl.rescale import after
from tilewright.targets.zynq.config import GROUP, LANES, LINE, TAPS, Config
from tilewright.targets.zynq.gateware import requantiser
from tilewright.targets.zynq.gateware.engine import Engine
from tilewright.targets.zynq.gateware.group_results import GroupResults
from tilewright.targets.zynq.gateware.groups import SIDES, Groups, columns
from tilewright.targets.zynq.gateware.lines import LineStore
from tilewright.targets.zynq.gateware.paging import Ahead
from tilewright.targets.zynq.gateware.pool import Pool
from tilewright.targets.zynq.gateware.states import Stage
from tilewright.targets.zynq.gateware.stores import OperandStore
from tilewright.targets.zynq.gateware.sums import SUMMED, Sums
from tilewright.targets.zynq.gateware.sweep import Sweep
from tilewright.targets.zynq.gateware.window import PIXEL, WindowBuffer
from tilewright.targets.zynq.isa.layer import Kind


def engine_of(config: Config) -> Engine:
    """Return the engine of a configuration."""
    return WindowEngine(config) if config.window else Engine(config)


class WindowEngine(Engine):
    """The engine behind its registers. Engine documents the ports; `hold`, `waiting`, `block`, `write` are not used."""

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        fields = self._fields(m)
        m.submodules.sweep = sweep = Sweep(config)
        m.submodules.groups = groups = Groups(config)
        m.submodules.window = window = WindowBuffer(config)
        m.submodules.pool = pool = Pool(config)
        m.submodules.sums = unit = Sums(config)
        m.submodules.results = results = GroupResults(config, self.beat)
        m.submodules.paging = paging = Ahead()
        for part in (sweep, groups, window, pool, results):
            own = [name for name in part.signature.members if name in fields]
            m.d.comb += [getattr(part, name).eq(fields[name]) for name in own]
        m.d.comb += [
            *(part.start.eq(self.start) for part in (sweep, pool, results)),
            groups.start.eq(self.start & ((sweep.kind == Kind.CONV_1_1) | (sweep.kind == Kind.CONV_OTHER))),
            self.interrupt.eq(self.ready | self.idle),
            self.moves.eq(~paging.stalls & ~self.idle),
            self.idle.eq((sweep.stage == Stage.IDLE) | (sweep.stage == Stage.FLUSH) & sweep.flushed),
            self.stage.eq(sweep.stage),
            *(part.moves.eq(self.moves) for part in (sweep, groups)),
            sweep.filled.eq(groups.filled),
            sweep.is_end.eq(groups.is_end),
            sweep.next_count.eq(groups.count),
            sweep.next_sides.eq(groups.sides),
            groups.next.eq(sweep.next),
            groups.more.eq(sweep.more),
            sweep.pool_last.eq(pool.last),
            sweep.flushed.eq(~results.leaves),
        ]
        stores = self._stores(m, paging)
        self._reads(m, fields, sweep, groups, pool, stores)
        self._window(m, sweep, groups, window, stores["data"].read.data)
        self._operands(m, fields, sweep, window, unit, stores)
        self._sums(m, sweep, unit, results, stores["bias"].read.data)
        m.d.sync += pool.arrives.eq(pool.next)
        byte = after(m, pool.data.offset[: ceil_log2(LINE["data"])], 1)
        m.d.comb += [
            pool.next.eq(self.moves & sweep.elements),
            pool.word.eq(stores["data"].read.data.word_select(byte, 8)),
        ]
        self._leave(m, sweep, pool, results, paging)
        return m

    def _unconnected(self) -> dict[str, Any]:
        config = self.config
        stores: dict[str, Any] = {
            name: LineStore(config.lines(name), words, config.block_bits, self.beat, whole=name == "weight")
            for name, words in LINE.items()
        }
        bias = OperandStore(config.bias_bits, 32, config.block_bits, self.beat, config.frames)
        return {**stores, "bias": bias}

    def _reads(
        self, m: Module, fields: dict[str, Any], sweep: Sweep, groups: Groups, pool: Pool, stores: dict[str, Any]
    ) -> None:
        """Read the stores: lines of weights and biases for sums, data for the window buffer, FC sums or the pool."""
        data, weight, bias = stores["data"], stores["weight"], stores["bias"]
        fc, per_block = sweep.is_fc, ceil_log2(self.config.lines("data"))
        asks = groups.asks | fc & sweep.iterates | sweep.elements
        line, word = ceil_log2(LINE["data"]), pool.data
        whole = self.config.frames * self.config.lines("data") * LANES  # the products whose data fit the store
        m.d.comb += [
            data.read.en.eq(asks),
            data.begins.eq(asks),
            data.read.block.eq(Mux(fc, sweep.time >> per_block, Mux(sweep.elements, word.block, groups.block))),
            data.read.offset.eq(Mux(fc, sweep.time, Mux(sweep.elements, word.offset >> line, groups.offset))),
            data.kept.eq(Mux(fc, fields["r"] <= whole, ~sweep.elements & groups.kept)),
            weight.read.en.eq(sweep.iterates),
            weight.begins.eq(sweep.iterates),
            weight.read.block.eq(sweep.block),
            weight.read.offset.eq(sweep.line),
            bias.read.en.eq(sweep.begins),
            bias.begins.eq(sweep.begins),
            bias.read.block.eq(sweep.column >> self.config.bias_bits),
            bias.read.offset.eq(sweep.column),
        ]

    def _window(self, m: Module, sweep: Sweep, groups: Groups, window: WindowBuffer, line: Value) -> None:
        """Connect the window buffer to the requests, and to the iteration whose weights arrive."""
        m.d.comb += [
            window.asks.eq(groups.asks & self.moves),
            *(getattr(window, name).eq(getattr(groups, name)) for name in ("pair", "slot", "row", "column")),
            window.asked.eq(groups.group),
            window.fills.eq(~sweep.half),
            window.line.eq(line),
            window.group.eq(after(m, sweep.time[: len(window.group)], 1)),
            window.uses.eq(after(m, sweep.half, 1)),
        ]

    def _operands(
        self, m: Module, fields: dict[str, Any], sweep: Sweep, window: WindowBuffer, unit: Sums, stores: dict[str, Any]
    ) -> None:
        """Give the unit its operands as int8 numbers: at masked taps, data are the zero point."""
        sides, fc = after(m, sweep.sides, 1), after(m, sweep.is_fc, 1)
        data_sign = Mux(fields["x_signed"], 0, 128)
        zero = Signal(8, name="zero")
        m.d.comb += zero.eq(fields["zx"][:8] ^ data_sign)
        for number in range(self.config.outputs):
            left, right, top, bottom = sides[len(SIDES) * number :][: len(SIDES)]
            lanes = []
            for tap in range(TAPS):
                dy, dx = divmod(tap, 3)
                is_masked = (left if dx == 0 else right if dx == 2 else 0) | (
                    top if dy == 0 else bottom if dy == 2 else 0
                )
                at = (dy * columns(self.config) + number + dx) * PIXEL
                pixel = window.pixels[at : at + PIXEL]
                lanes.append(Mux(is_masked, zero.replicate(GROUP), pixel) if tap != TAPS // 2 else pixel)
            found: Value = Cat(lanes)
            if number == 0:
                found = Mux(fc, stores["data"].read.data[: 8 * LANES] ^ data_sign.replicate(LANES), found)
            m.d.comb += getattr(unit, f"x{number}").eq(found)
        weight_sign = Mux(fields["w_signed"], 0, 128)
        m.d.comb += [
            unit.weights.eq(stores["weight"].read.data ^ weight_sign.replicate(LANES)),
            unit.zw.eq(fields["zw"] - weight_sign),
        ]

    def _sums(self, m: Module, sweep: Sweep, unit: Sums, results: GroupResults, bias: Value) -> None:
        """Add the accumulators, which begin with the bias, and give complete sums to the results."""
        adds, begins = (after(m, self.moves & each, SUMMED - 1) for each in (sweep.iterates, sweep.begins))
        base = after(m, bias, SUMMED - 2)
        accumulators = []
        for number in range(self.config.outputs):
            acc = Signal(signed(requantiser.BITS), name=f"acc{number}")
            with m.If(adds):
                m.d.sync += acc.eq(Mux(begins, base, acc) + getattr(unit, f"sum{number}"))
            accumulators.append(acc)
        m.d.comb += [
            results.sums.eq(Cat(accumulators)),
            results.complete.eq(after(m, self.moves & sweep.completes, SUMMED)),
            results.sum_count.eq(after(m, sweep.count, SUMMED)),
            results.column.eq(after(m, sweep.column, SUMMED)),
        ]

    def _leave(self, m: Module, sweep: Sweep, pool: Pool, results: GroupResults, paging: Ahead) -> None:
        """Connect the way of results to the states, the pool and the PS's port, and the page requests to the PS."""
        pools = sweep.elements & pool.gives
        m.d.comb += [
            results.begins.eq(sweep.begins | pools),
            results.pools.eq(self.moves & pools),
            results.ends_group.eq(self.moves & sweep.ends_channel),
            results.count.eq(sweep.count),
            results.is_last.eq(Mux(sweep.elements, pool.last, sweep.is_last)),
            results.ends.eq(sweep.ends),
            results.pool_result.eq(pool.result),
            results.page_address.eq(self.page_address),
            results.done.eq(paging.result_done),
            self.page_result.eq(results.page_result),
            *(
                getattr(results, f"factor_{name}").eq(getattr(self, f"factor_{name}"))
                for name in ("address", "data", "write")
            ),
            paging.done.eq(self.done),
            paging.result_miss.eq(results.full),
            paging.result_ready.eq(results.leaves),
            paging.job.eq(self.job),
            self.ready.eq(paging.ready),
        ]
