"""LOAD and STORE: the load unit, the store unit, and their parts, which run 2-D transfers of instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.axi import RowBursts, beat_of
from tilewright.hdl.memory import BeatWrite, StreamFifo, TileRead
from tilewright.hdl.parts import Part, add, after, drive, expose, ports
from tilewright.hdl.transfers import PLACEMENT, WHICH_BITS, Placer, TileReceiver, TileSender, chosen
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.gateware.units import UNIT, Dispatcher, dispatched, fields, log_bytes, reader, tiles
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.timing.model import LONGEST, OUTSTANDING

#: The memories that a unit loads or stores, by name. The unit has a port NAME_base for the base address of each.
Memories = Mapping[str, Sram]


def row_bursts(m: Module, unit: Any, mem: Mapping[str, Value], rows: Any, memories: Memories, which: Value) -> Any:
    """Add and return the component that requests bursts on the unit's DRAM port, for a transfer of `rows` rows.

    `mem` has the instruction's fields; the signal `which` selects one of `memories`.
    """
    srams = list(memories.values())
    bases = [getattr(unit, f"{name}_base") for name in memories]

    def scaled(name: str) -> Value:
        return chosen(which, [mem[name] << log_bytes(sram) for sram in srams])

    bursts = add(m, "bursts", RowBursts(unit.config.bus_bits, LONGEST))
    expose(m, bursts.bursts, unit.client)
    address = address_of(mem, bases, srams, which)
    m.d.comb += drive(bursts.rows, address=address, stride=scaled("x_stride"), rows=rows, row_bytes=scaled("x_size"))
    return bursts


def address_of(mem: Mapping[str, Value], bases: Sequence[Value], memories: Sequence[Sram], which: Value) -> Value:
    """Return the first DRAM byte address of the LOAD or STORE with the fields `mem`."""
    places = zip(bases, memories, strict=True)
    return chosen(which, [base + (mem["dram_base"] << log_bytes(sram)) for base, sram in places])


def placed(
    m: Module, unit: Any, mem: Mapping[str, Value], bursts: Any, memories: Memories, which: Value, padded: Value
) -> Placer:
    """Add and return the component that computes the on-chip positions of a LOAD's tiles, with padding if `padded`."""
    placer = add(m, "placer", Placer(), which=which)
    window = placer.window
    address = bursts.rows.address

    def offset(sram: Sram) -> Any:
        """Return the position, in tiles, of the transfer's first tile in the DRAM beat that contains it."""
        lanes = ceil_log2(tiles(sram, unit.config).lanes)
        return address[log_bytes(sram) : log_bytes(sram) + lanes] if lanes else 0

    pads = {"top": "y_pad_0", "bottom": "y_pad_1", "left": "x_pad_0", "right": "x_pad_1"}
    m.d.comb += drive(
        window,
        index=mem["sram_base"],
        rows=bursts.rows.rows,
        columns=mem["x_size"],
        offset=chosen(which, [offset(sram) for sram in memories.values()]),
        step=mem["x_stride"],
        **{name: Mux(padded, mem[field], 0) for name, field in pads.items()},
    )
    return placer


def received(m: Module, unit: Any, memories: Memories, suffix: str = "") -> TileReceiver:
    """Add and return the receiver, which writes incoming DRAM beats to `memories`.

    For each memory, the receiver writes to the unit's port with the name of the memory followed by `suffix`.
    """
    receiver = TileReceiver([tiles(sram, unit.config) for sram in memories.values()])
    add(m, "receiver", receiver, **ports(unit, "valid", "data"))
    for number, name in enumerate(memories):
        expose(m, getattr(receiver, f"write{number}"), getattr(unit, name + suffix))
    return receiver


def leaving(m: Module, unit: Any, dispatch: Dispatcher, note: Value) -> tuple[Value, Value, Signal]:
    """Add a queue of instructions that have freed the unit but not ended. Instructions end in order.

    `note`: a value to store with each instruction. Returns the note of the oldest instruction, whether the queue has an
    instruction, and the signal that ends the oldest instruction.
    """
    queue = add(m, "leaving", StreamFifo(2 + len(note), OUTSTANDING))
    ends = Signal()
    m.d.comb += drive(queue.i, valid=dispatch.ends, payload=Cat(dispatch.reserve, note))
    m.d.comb += [
        dispatch.may_end.eq(queue.level != OUTSTANDING),
        queue.o.ready.eq(ends),
        unit.tokens.push.eq(queue.o.payload[:2] & ends.replicate(2)),
        unit.ends.eq(ends),
    ]
    return queue.o.payload[2:], queue.o.valid, ends


def running(m: Module, dispatch: Dispatcher) -> tuple[Signal, Signal]:
    """Return two signals: the first cycle of an instruction, and all cycles until the instruction frees the unit."""
    prepare = after(m, dispatch.start, 1)
    runs = Signal()
    with m.If(prepare):
        m.d.sync += runs.eq(1)
    with m.If(dispatch.ends):
        m.d.sync += runs.eq(0)
    return prepare, runs


class LoadUnit(Part):
    """The load unit.

    After a LOAD without padding, the next starts when the last burst is granted. LOADs end in order.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.memories = {"inp": config.inp, "wgt": config.wgt}
        if config.has_parameters:
            self.memories["par"] = config.par
        bases = {f"{name}_base": In(32) for name in self.memories}
        beats = {name: Out(BeatWrite(tiles(sram, config))) for name, sram in self.memories.items()}
        super().__init__(**(UNIT | reader(config) | bases | beats))

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        config = self.config
        memories = self.memories
        rules = self.config.rules
        dispatch = dispatched(m, self, (False, True))
        mem = fields(dispatch.current, config.formats.mem)
        which = Signal(WHICH_BITS)
        transfers = Signal()
        works = Signal()
        padded = Signal()
        with m.Switch(mem["memory_type"]):
            for number, memory in enumerate((Memory.INP, Memory.WGT, Memory.PAR)[: len(memories)]):
                with m.Case(memory):
                    m.d.comb += which.eq(number)
        bursts = row_bursts(m, self, mem, mem["y_size"], memories, which)
        placer = placed(m, self, mem, bursts, memories, which, padded=(which == 0) | rules.full_loads)
        placements = add(m, "placements", StreamFifo(PLACEMENT, OUTSTANDING + 2))
        receiver = received(m, self, memories)
        wiring.connect(m, placements.o, receiver.placements)

        prepare, runs = running(m, dispatch)
        with m.If(prepare):
            m.d.sync += padded.eq(placer.padded)
        # The receiver writes padding, so a LOAD with padding frees the unit only after all writes.
        arrived = (placements.level == 0) & receiver.idle
        m.d.comb += [
            transfers.eq((mem["x_size"] != 0) & (mem["y_size"] != 0)),
            works.eq(transfers | (placer.padded & ((mem["x_size"] != 0) | rules.empty_loads_pad))),
            bursts.start.eq(prepare & transfers),
            *drive(placements.i, valid=prepare & works, payload=placer.placement),
            dispatch.finished.eq((prepare & ~works) | (runs & ~bursts.active & (~padded | arrived))),
        ]
        # A LOAD ends when all its data has been written.
        done = Signal(range(2 * OUTSTANDING + 2))
        waits, there, ends = leaving(m, self, dispatch, works)
        m.d.comb += ends.eq(there & (~waits | (done != 0)))
        m.d.sync += done.eq(done + receiver.completes - (ends & waits))
        return m


class StoreUnit(Part):
    """The store unit. The next STORE starts when the tiles of the current one have been read.

    A STORE ends with its last write response. `granted` and `ended` count the bursts granted and answered so far.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        out = tiles(config.out, config)
        super().__init__(
            **UNIT,
            out_base=In(32),
            client=reader(config)["client"],
            beats=Out(stream.Signature(beat_of(config.bus_bits))),
            granted=In(16),
            ended=In(16),
            out=Out(TileRead(out, out.lanes)),
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        config = self.config
        dispatch = dispatched(m, self, (True, False))
        mem = fields(dispatch.current, config.formats.mem)
        transfers = Signal()
        bursts = row_bursts(m, self, mem, mem["y_size"], {"out": config.out}, transfers)
        prepare, runs = running(m, dispatch)
        starts = prepare & transfers
        sender = add(m, "sender", TileSender(tiles(config.out, config), LONGEST), start=starts)
        expose(m, sender.beats, self.beats)
        expose(m, sender.read, self.out)
        m.d.comb += drive(
            sender.packed,
            index=mem["sram_base"],
            columns=mem["x_size"],
            rows=mem["y_size"],
            **ports(bursts.rows, "address", "stride"),
        )
        m.d.comb += [
            transfers.eq((mem["x_size"] != 0) & (mem["y_size"] != 0)),
            bursts.start.eq(starts),
            dispatch.finished.eq((prepare & ~transfers) | (runs & ~bursts.active & ~sender.active)),
        ]
        # A STORE ends after the responses to all bursts that were granted before the STORE freed the unit.
        ticket, there, ends = leaving(m, self, dispatch, self.granted)
        # Both counters wrap, so the sign of the difference shows which counter is ahead.
        m.d.comb += ends.eq(there & ~(self.ended - ticket)[15])
        return m
