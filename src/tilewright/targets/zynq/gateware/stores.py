"""The paged stores in dual-port block RAM: one port for the engine, one for the PS, which moves whole blocks.

A store holds one block; the block register names it. The engine's access to another block is a miss: the engine stops
until the PS has moved that block (paging.py).
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, clear, drive, ram
from tilewright.targets.zynq.gateware.paging import Pages

#: Inputs of a store that only two frames need.
FRAME_PORTS = ("kept", "more", "begins", "moves")
#: Frames of a store whose uses are counted, and bits of the number of a use.
FRAMES, USES = 2, 28


class Read(wiring.Signature):
    """An access of the engine to a word of a store. `data` is the word a cycle after an access that does not miss."""

    def __init__(self, block_bits: int, offset_bits: int, width: int) -> None:
        super().__init__({"en": Out(1), "block": Out(block_bits), "offset": Out(offset_bits), "data": In(width)})


class Store(Part):
    """A store that the PS fills. `start` empties it.

    The PS writes `beat` bits at a time: `data` to beat number `address` of a frame with `write`; there are `beats`.

    With two frames, the PS loads the blocks in the order of their uses: the k-th into frame k modulo 2, and
    `pages.done` ends each load. An access to another block than the one before is the next use; with `kept`, the use of
    a block is its number. With `begins`, an iteration begins at `read.block` (or would, after a result is written):
    this frees the frames of earlier uses, and the access also needs the next use if `more` is set. `moves`: the engine
    makes the access. `pages.ready`: a frame is free.
    """

    def __init__(self, read: Read, beats: int, beat: int, frames: int) -> None:
        self.beat, self.frames = beat, frames
        super().__init__(
            read=In(read),
            pages=Out(Pages(read.members["block"].shape)),
            address=In(range(max(2, beats))),
            data=In(beat),
            write=In(1),
            start=In(1),
            **{name: In(1) for name in FRAME_PORTS},
        )

    def uses(self, m: Module) -> tuple[Value, Value]:
        """Count the uses of the blocks with two frames. Return the frame of the access, and that which the PS fills."""
        read, pages = self.read, self.pages
        use, wanted, loaded, left, free = (
            Signal(USES, name=name) for name in ("use", "wanted", "loaded", "left", "free")
        )
        held, valid = Signal.like(read.block), Signal()
        follows = valid & (held != read.block)
        m.d.comb += [
            wanted.eq(Mux(self.kept, read.block, use + follows)),
            free.eq(Mux(self.begins & ~self.kept, wanted, left)),
            pages.miss.eq(read.en & (wanted + (self.more & self.begins) >= loaded)),
            pages.ready.eq(loaded - free < FRAMES),
        ]
        with m.If(self.start):
            m.d.sync += clear(use, loaded, left, valid)
        with m.Else():
            m.d.sync += [loaded.eq(loaded + pages.done), left.eq(free)]
            with m.If(read.en & self.moves):
                m.d.sync += [use.eq(wanted), held.eq(read.block), valid.eq(1)]
        return wanted[0], loaded[0]


class OperandStore(Store):
    """A store of one block of 2**`word_bits` words of `width` bits, or of two blocks, each in a frame.

    With one frame, it holds block `read.block` after `pages.done`.
    """

    def __init__(self, word_bits: int, width: int, block_bits: int, beat: int, frames: int = 1) -> None:
        self.width, self.lines = width, (width << word_bits) // beat
        super().__init__(Read(block_bits, word_bits, width), self.lines, beat, frames)

    def define(self, m: Module) -> None:
        writes, reads = ram(m, "ram", self.beat, self.lines * self.frames)
        lanes = self.beat // self.width
        inside = Signal(range(max(2, lanes)))
        line = self.read.offset >> ceil_log2(lanes)
        m.d.comb += drive(writes, data=self.data, en=self.write)
        m.d.comb += reads.en.eq(self.read.en)
        with m.If(self.read.en):
            m.d.sync += inside.eq(self.read.offset[: ceil_log2(lanes)])
        m.d.comb += self.read.data.eq(reads.data.word_select(inside, self.width) if lanes > 1 else reads.data)
        if self.frames == 1:
            m.d.comb += [writes.addr.eq(self.address), reads.addr.eq(line)]
            self._tag(m)
        else:
            frame, loading = self.uses(m)
            m.d.comb += writes.addr.eq(Mux(loading, self.lines, 0) + self.address)
            m.d.comb += reads.addr.eq(Mux(frame, self.lines, 0) + line)

    def _tag(self, m: Module) -> None:
        """One frame: a register for the number of the block that the store holds."""
        block, held, valid = self.read.block, Signal.like(self.read.block), Signal()
        m.d.comb += drive(self.pages, miss=self.read.en & ~(valid & (held == block)), block=block)
        with m.If(self.start):
            m.d.sync += valid.eq(0)
        with m.Elif(self.pages.done):
            m.d.sync += [held.eq(block), valid.eq(1)]


class ResultStore(Part):
    """The store that the PS empties: one block of 2**`word_bits` result codes, or two, each in a frame.

    The engine writes `code` to word `offset` of frame `frame` with `en`. The PS reads `data`, `beat` bits at a time: it
    is beat number `address` of frame `leaving`, of a cycle before.
    """

    def __init__(self, word_bits: int, beat: int, frames: int = 1) -> None:
        self.beat, self.lines, self.frames = beat, (1 << word_bits) * 8 // beat, frames
        super().__init__(
            en=In(1),
            offset=In(word_bits),
            code=In(8),
            frame=In(1),
            leaving=In(1),
            address=In(range(max(2, self.lines))),
            data=Out(beat),
        )

    def define(self, m: Module) -> None:
        writes, reads = ram(m, "ram", self.beat, self.lines * self.frames, 8)
        lanes = self.beat // 8
        m.d.comb += drive(
            writes,
            addr=Mux(self.frame, self.lines, 0) + (self.offset >> ceil_log2(lanes)),
            data=self.code.replicate(lanes),
            en=self.en << self.offset[: ceil_log2(lanes)],
        )
        m.d.comb += [reads.addr.eq(Mux(self.leaving, self.lines, 0) + self.address), self.data.eq(reads.data)]
