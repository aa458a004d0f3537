"""The engine with `window=1`, connected: stores with lines, the window buffer, a unit for several outputs.

It has the ports and the protocol of Engine with two frames. In every cycle in which no access misses, its states make a
step. An iteration's operands follow a cycle later, and their sums sums.LATENCY cycles after these.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import after, drive
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
            *drive(
                groups,
                start=self.start & ((sweep.kind == Kind.CONV_1_1) | (sweep.kind == Kind.CONV_OTHER)),
                next=sweep.next,
                more=sweep.more,
            ),
            *drive(
                self,
                interrupt=self.ready | self.idle,
                moves=~paging.stalls & ~self.idle,
                idle=(sweep.stage == Stage.IDLE) | (sweep.stage == Stage.FLUSH) & sweep.flushed,
                stage=sweep.stage,
            ),
            *(part.moves.eq(self.moves) for part in (sweep, groups)),
            *drive(
                sweep,
                filled=groups.filled,
                is_end=groups.is_end,
                next_count=groups.count,
                next_sides=groups.sides,
                pool_last=pool.last,
                flushed=~results.leaves,
            ),
        ]
        stores = self._stores(m, paging)
        self._reads(m, fields, sweep, groups, pool, stores)
        self._window(m, sweep, groups, window, stores["data"].read.data)
        self._operands(m, fields, sweep, window, unit, stores)
        self._sums(m, sweep, unit, results, stores["bias"].read.data)
        m.d.sync += pool.arrives.eq(pool.next)
        byte = after(m, pool.data.offset[: ceil_log2(LINE["data"])], 1)
        m.d.comb += drive(pool, next=self.moves & sweep.elements, word=stores["data"].read.data.word_select(byte, 8))
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
            *drive(
                data.read,
                en=asks,
                block=Mux(fc, sweep.time >> per_block, Mux(sweep.elements, word.block, groups.block)),
                offset=Mux(fc, sweep.time, Mux(sweep.elements, word.offset >> line, groups.offset)),
            ),
            *drive(data, begins=asks, kept=Mux(fc, fields["r"] <= whole, ~sweep.elements & groups.kept)),
            *drive(weight.read, en=sweep.iterates, block=sweep.block, offset=sweep.line),
            weight.begins.eq(sweep.iterates),
            *drive(bias.read, en=sweep.begins, block=sweep.column >> self.config.bias_bits, offset=sweep.column),
            bias.begins.eq(sweep.begins),
        ]

    def _window(self, m: Module, sweep: Sweep, groups: Groups, window: WindowBuffer, line: Value) -> None:
        """Connect the window buffer to the requests, and to the iteration whose weights arrive."""
        m.d.comb += [
            *drive(
                window,
                asks=groups.asks & self.moves,
                asked=groups.group,
                fills=~sweep.half,
                line=line,
                group=after(m, sweep.time[: len(window.group)], 1),
                uses=after(m, sweep.half, 1),
            ),
            *(getattr(window, name).eq(getattr(groups, name)) for name in ("pair", "slot", "row", "column")),
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
        m.d.comb += drive(
            unit, weights=stores["weight"].read.data ^ weight_sign.replicate(LANES), zw=fields["zw"] - weight_sign
        )

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
        m.d.comb += drive(
            results,
            sums=Cat(accumulators),
            complete=after(m, self.moves & sweep.completes, SUMMED),
            sum_count=after(m, sweep.count, SUMMED),
            column=after(m, sweep.column, SUMMED),
        )

    def _leave(self, m: Module, sweep: Sweep, pool: Pool, results: GroupResults, paging: Ahead) -> None:
        """Connect the way of results to the states, the pool and the PS's port, and the page requests to the PS."""
        pools = sweep.elements & pool.gives
        m.d.comb += [
            *drive(
                results,
                begins=sweep.begins | pools,
                pools=self.moves & pools,
                ends_group=self.moves & sweep.ends_channel,
                count=sweep.count,
                is_last=Mux(sweep.elements, pool.last, sweep.is_last),
                ends=sweep.ends,
                pool_result=pool.result,
                page_address=self.page_address,
                done=paging.result_done,
            ),
            *drive(self, page_result=results.page_result, ready=paging.ready),
            *(
                getattr(results, f"factor_{name}").eq(getattr(self, f"factor_{name}"))
                for name in ("address", "data", "write")
            ),
            *drive(paging, done=self.done, result_miss=results.full, result_ready=results.leaves, job=self.job),
        ]
