"""The engine with `window=1`: stores with lines, the window buffer, and a unit for several outputs.

The ports and the protocol are those of Engine with two frames. The state machine advances in each cycle without a miss.
The operands of an iteration arrive one cycle after its request, and the sums are complete unit.LATENCY cycles later.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import add, after, drive, ports
from tilewright.targets.zynq.config import GROUP, LANES, LINE, TAPS, Config
from tilewright.targets.zynq.gateware.engine import Engine
from tilewright.targets.zynq.gateware.groups import PIXEL, SIDES, Groups, WindowBuffer, columns
from tilewright.targets.zynq.gateware.results import BITS, GroupResults
from tilewright.targets.zynq.gateware.states import Stage
from tilewright.targets.zynq.gateware.stores import Ahead, LineStore, Store
from tilewright.targets.zynq.gateware.sweep import Sweep
from tilewright.targets.zynq.gateware.unit import SUMMED, Pool, Sums
from tilewright.targets.zynq.isa.layer import Kind


def engine_of(config: Config) -> Engine:
    return WindowEngine(config) if config.window else Engine(config)


class WindowEngine(Engine):
    """The engine without AXI4-Lite registers. The ports hold, waiting, block and write are not used."""

    def define(self, m: Module) -> None:
        config = self.config
        layer = self.descriptor
        sweep = Sweep(config)
        groups = Groups(config)
        moves = ports(self, "moves")
        is_conv = (sweep.kind == Kind.CONV_1_1) | (sweep.kind == Kind.CONV_OTHER)
        pool = add(m, "pool", Pool(config), start=self.start, layer=layer)
        results = GroupResults(config, self.beat)
        paging = add(m, "paging", Ahead(config))
        add(
            m,
            "sweep",
            sweep,
            **ports(self, "start", "moves"),
            **ports(groups, "filled", "is_end"),
            layer=layer,
            kind=layer.kind,
            next_count=groups.count,
            next_sides=groups.sides,
            pool_last=pool.last,
            flushed=~results.leaves,
        )
        add(m, "groups", groups, **moves, **ports(sweep, "next", "more"), layer=layer, start=self.start & is_conv)
        m.d.comb += drive(
            self,
            interrupt=self.ready | self.idle,
            moves=~paging.stalls & ~self.idle,
            idle=(sweep.stage == Stage.IDLE) | (sweep.stage == Stage.FLUSH) & sweep.flushed,
            stage=sweep.stage,
        )
        stores = self._stores(m, paging)
        self._reads(m, layer, sweep, groups, pool, stores)
        line = stores["data"].read.data
        window = self._window(m, layer, sweep, groups, line)
        unit = self._operands(m, layer, sweep, window, stores)
        pools = sweep.elements & pool.gives
        add(
            m,
            "results",
            results,
            **ports(sweep, "count", "ends"),
            **self._sums(m, sweep, unit, stores["bias"].read.data),
            start=self.start,
            layer=layer,
            begins=sweep.begins | pools,
            pools=self.moves & pools,
            ends_group=self.moves & sweep.ends_channel,
            is_last=Mux(sweep.elements, pool.last, sweep.is_last),
        )
        byte = after(m, pool.data.offset[: ceil_log2(LINE["data"])], 1)
        m.d.sync += pool.arrives.eq(pool.next)
        m.d.comb += drive(pool, next=self.moves & sweep.elements, word=line.word_select(byte, 8))
        self._leave(m, pool, results, paging, results.full)

    def _store(self, name: str) -> Store:
        if name not in LINE:
            return super()._store(name)
        config = self.config
        return LineStore(config.lines(name), LINE[name], config.block_bits, self.beat, whole=name == "weight")

    def _reads(self, m: Module, layer: Any, sweep: Sweep, groups: Groups, pool: Pool, stores: dict[str, Any]) -> None:
        """Read lines of weights, biases, and data for the window buffer, for FC sums or for the pool."""
        data = stores["data"]
        weight = stores["weight"]
        bias = stores["bias"]
        fc = sweep.is_fc
        pools = sweep.elements
        word = pool.data
        line = ceil_log2(LINE["data"])
        per_block = ceil_log2(self.config.lines("data"))
        asks = groups.asks | fc & sweep.iterates | pools
        whole = self.config.frames * self.config.lines("data") * LANES  # the capacity of the store in products
        block = Mux(fc, sweep.time >> per_block, Mux(pools, word.block, groups.block))
        offset = Mux(fc, sweep.time, Mux(pools, word.offset >> line, groups.offset))
        m.d.comb += drive(data.read, en=asks, block=block, offset=offset)
        m.d.comb += drive(data, begins=asks, kept=Mux(fc, layer.r <= whole, ~pools & groups.kept))
        m.d.comb += drive(weight.read, en=sweep.iterates, block=sweep.block, offset=sweep.line)
        m.d.comb += weight.begins.eq(sweep.iterates)
        block = sweep.column >> self.config.bias_bits
        m.d.comb += drive(bias.read, en=sweep.begins, block=block, offset=sweep.column)
        m.d.comb += bias.begins.eq(sweep.begins)

    def _window(self, m: Module, layer: Any, sweep: Sweep, groups: Groups, line: Value) -> WindowBuffer:
        """Add the window buffer, which stores requested lines and supplies the pixels of the current iteration."""
        window = WindowBuffer(self.config)
        return add(
            m,
            "window",
            window,
            **ports(groups, "pair", "slot", "row", "column"),
            layer=layer,
            asks=groups.asks & self.moves,
            asked=groups.group,
            fills=~sweep.half,
            line=line,
            group=after(m, sweep.time[: len(window.group)], 1),
            uses=after(m, sweep.half, 1),
        )

    def _operands(self, m: Module, layer: Any, sweep: Sweep, window: WindowBuffer, stores: dict[str, Any]) -> Sums:
        """Add the unit, and convert its operands to int8 numbers. Masked taps get the zero point as data."""
        # A tap beyond the left or right side of the image must be masked, because the run of pixels continues there
        # with pixels of another row.
        sides = after(m, sweep.sides, 1)
        fc = after(m, sweep.is_fc, 1)
        data_sign = Mux(layer.x_signed, 0, 128)
        weight_sign = Mux(layer.w_signed, 0, 128)
        zero = Signal(8, name="zero")
        m.d.comb += zero.eq(layer.zx[:8] ^ data_sign)
        operands = {}
        for number in range(self.config.outputs):
            left, right, top, bottom = sides[len(SIDES) * number :][: len(SIDES)]
            lanes = []
            for tap in range(TAPS):
                dy, dx = divmod(tap, 3)
                at = (dy * columns(self.config) + number + dx) * PIXEL
                pixel = window.pixels[at : at + PIXEL]
                is_masked = (left, 0, right)[dx] | (top, 0, bottom)[dy]
                lanes.append(pixel if tap == TAPS // 2 else Mux(is_masked, zero.replicate(GROUP), pixel))
            operands[f"x{number}"] = Cat(lanes)
        word = stores["data"].read.data[: 8 * LANES] ^ data_sign.replicate(LANES)
        operands["x0"] = Mux(fc, word, operands["x0"])
        operands["weights"] = stores["weight"].read.data ^ weight_sign.replicate(LANES)
        return add(m, "sums", Sums(self.config), **operands, zw=layer.zw - weight_sign)

    def _sums(self, m: Module, sweep: Sweep, unit: Sums, bias: Value) -> dict[str, Value]:
        """Add the accumulators, which begin with the bias. Return the inputs of GroupResults for complete sums."""
        adds, begins = (after(m, self.moves & flag, SUMMED - 1) for flag in (sweep.iterates, sweep.begins))
        base = after(m, bias, SUMMED - 2)
        accumulators = []
        for number in range(self.config.outputs):
            acc = Signal(signed(BITS), name=f"acc{number}")
            with m.If(adds):
                m.d.sync += acc.eq(Mux(begins, base, acc) + getattr(unit, f"sum{number}"))
            accumulators.append(acc)
        return {
            "sums": Cat(accumulators),
            "complete": after(m, self.moves & sweep.completes, SUMMED),
            "sum_count": after(m, sweep.count, SUMMED),
            "column": after(m, sweep.column, SUMMED),
        }
