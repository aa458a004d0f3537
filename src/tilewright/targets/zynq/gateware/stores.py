"""The paged stores in dual-port block RAM. One port is for the engine, one for the PS, which moves whole blocks.

With one frame, a store holds one block, whose number is in the block register. An access to another block is a miss,
which stops the engine in the same cycle. From the next cycle on, `waiting` is 1, until the PS has moved the missing
block and pulses `done`. Several misses in a cycle are served one after another.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, clear, drive, flags, ram
from tilewright.targets.zynq.config import STORES, Config

#: The order in which misses of the same cycle are served.
ORDER = ("result", "data", "weight", "bias")


class Pages(wiring.Signature):
    """The page requests of a store."""

    def __init__(self, block_bits: int) -> None:
        # `miss` is 1 if an access misses block `block`, or if the result block `block` is complete. With two frames,
        # `ready` is 1 if the store has a free frame, or a result block that must be moved. The PS pulses `done` after
        # it has moved a block.
        super().__init__({"miss": Out(1), "block": Out(block_bits), "ready": Out(1), "done": In(1)})


class Paging(Part):
    """Requests pages with one frame. At `stalls`, the engine must stop. At `hold`, no request begins."""

    def __init__(self, config: Config) -> None:
        super().__init__(
            **{store: In(Pages(config.block_bits)) for store in STORES},
            **flags(Out, "stalls", "waiting", "write"),
            store=Out(2),
            block=Out(config.block_bits),
            done=In(1),
            hold=In(1),
        )

    def define(self, m: Module) -> None:
        served = self.waiting & self.done
        with m.If(self.waiting):
            m.d.comb += self.stalls.eq(1)
            with m.If(self.done):
                m.d.sync += self.waiting.eq(0)
        for number, store in enumerate(STORES):
            m.d.comb += getattr(self, store).done.eq(served & (self.store == number))
        for place, store in enumerate(ORDER):
            pages = getattr(self, store)
            number = STORES.index(store)
            with m.If(pages.miss) if place == 0 else m.Elif(pages.miss):
                m.d.comb += self.stalls.eq(1)
                with m.If(~self.waiting & ~self.hold):
                    m.d.sync += drive(self, waiting=1, store=number, block=pages.block, write=store == "result")


class Ahead(Part):
    """Page requests with two frames. The PS knows the order, so the engine waits only for a late block."""

    def __init__(self, config: Config) -> None:
        # The PS sets `job` to the store of its next page, waits for `ready`, moves the page, and then pulses `done`.
        super().__init__(
            **{store: In(Pages(config.block_bits)) for store in STORES},
            stalls=Out(1),
            job=In(2),
            ready=Out(1),
            done=In(1),
        )

    def define(self, m: Module) -> None:
        stores = [getattr(self, store) for store in STORES]
        m.d.comb += self.stalls.eq(Cat(pages.miss for pages in stores).any())
        with m.Switch(self.job):
            for number, pages in enumerate(stores):
                with m.Case(number):
                    m.d.comb += [self.ready.eq(pages.ready), pages.done.eq(self.done)]


#: The number of frames of a store that counts uses, and the width of the counters.
FRAMES = 2
USES = 28


class Read(wiring.Signature):
    """An access of the engine to a word of a store. One cycle later, `data` is the word, unless the access misses."""

    def __init__(self, block_bits: int, offset_bits: int, width: int) -> None:
        super().__init__({"en": Out(1), "block": Out(block_bits), "offset": Out(offset_bits), "data": In(width)})


class Store(Part):
    """A store that the PS fills. A pulse of `start` empties the store."""

    def __init__(self, read: Read, beats: int, beat: int, frames: int) -> None:
        # At `write`, the PS writes `data` (`beat` bits) to beat number `address` of a frame of `beats` beats. `moves`
        # is 1 if the engine advances, so that the access of `read` takes effect.
        #
        # With two frames, the PS loads blocks in the order of their uses. The block of use k goes to frame k modulo 2.
        # Each load ends with `pages.done`, and `pages.ready` is 1 while a frame is free. An access begins the next use
        # if its block differs from the block of the previous access. `begins` marks the start of an iteration (or of a
        # result) at `read.block`, and frees the frames of earlier uses. With `more`, this iteration also needs the next
        # use. With `kept`, all blocks stay in the store, so the number of a use is the number of its block.
        self.beat = beat
        self.frames = frames
        super().__init__(
            read=In(read),
            pages=Out(Pages(read.members["block"].shape)),
            address=In(range(max(2, beats))),
            data=In(beat),
            write=In(1),
            start=In(1),
            **flags(In, "kept", "more", "begins", "moves"),
        )

    def uses(self, m: Module) -> tuple[Value, Value]:
        """Count the uses of blocks with two frames. Return the engine's frame and the PS's frame."""
        read = self.read
        pages = self.pages
        use, wanted, loaded, left, free = (
            Signal(USES, name=name) for name in ("use", "wanted", "loaded", "left", "free")
        )
        held = Signal.like(read.block)
        valid = Signal()
        # From the start of the layer, count the current use, the loaded uses, and the uses that are no longer needed.
        # The block of use k is present if more than k uses are loaded. A frame is free if fewer than two loaded uses
        # are still needed.
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
    """A store of one or two frames, for blocks of 2**`word_bits` words of `width` bits."""

    def __init__(self, word_bits: int, width: int, block_bits: int, beat: int, frames: int = 1) -> None:
        # With one frame, `pages.done` says that the store now holds block `read.block`.
        self.width = width
        self.lines = (width << word_bits) // beat
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
            block = self.read.block
            held = Signal.like(self.read.block)
            valid = Signal()
            m.d.comb += drive(self.pages, miss=self.read.en & ~(valid & (held == block)), block=block)
            with m.If(self.start):
                m.d.sync += valid.eq(0)
            with m.Elif(self.pages.done):
                m.d.sync += [held.eq(block), valid.eq(1)]
        else:
            frame, loading = self.uses(m)
            m.d.comb += writes.addr.eq(Mux(loading, self.lines, 0) + self.address)
            m.d.comb += reads.addr.eq(Mux(frame, self.lines, 0) + line)


class ResultStore(Part):
    """The store that the PS empties, with one or two frames, for blocks of 2**`word_bits` result codes."""

    def __init__(self, word_bits: int, beat: int, frames: int = 1) -> None:
        # At `en`, the engine writes `code` to word `offset` of frame `frame`. `data` is beat number `address` (`beat`
        # bits) of frame `leaving`, one cycle after the address.
        self.beat = beat
        self.lines = (1 << word_bits) * 8 // beat
        self.frames = frames
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


class LineStore(Store):
    """A store of two frames, for blocks of `lines` lines of `words` bytes. A line is read in one cycle."""

    def __init__(self, lines: int, words: int, block_bits: int, beat: int, whole: bool) -> None:
        # With `whole`, a line is written at once when its last beat arrives, so the PS must write the beats in order.
        # The parity bits of the block RAM can then hold words as well.
        self.lines = lines
        self.width = 8 * words
        self.whole = whole
        self.parts = self.width // beat
        read = Read(block_bits, max(1, ceil_log2(lines)), self.width)
        super().__init__(read, lines * self.parts + 1, beat, FRAMES)

    def define(self, m: Module) -> None:
        size = 1 << ceil_log2(self.lines)
        writes, reads = ram(m, "ram", self.width, FRAMES * size, None if self.whole else self.beat)
        frame, loading = self.uses(m)
        if self.whole:
            line = self._assembled(m, writes)
        else:
            log = ceil_log2(self.parts)
            m.d.comb += drive(writes, data=self.data.replicate(self.parts), en=self.write << self.address[:log])
            line = self.address >> log
        m.d.comb += drive(reads, en=self.read.en, addr=Mux(frame, size, 0) + self.read.offset)
        m.d.comb += self.read.data.eq(reads.data)
        m.d.comb += writes.addr.eq(Mux(loading, size, 0) + line)

    def _assembled(self, m: Module, writes: Any) -> Value:
        """Collect the beats of a line in a register, and write the line with its last beat. Return the line's index."""
        before = Signal(self.width - self.beat)
        count = Signal(range(self.parts))
        line = Signal(range(max(2, self.lines + 1)))
        # Address 0 always begins a block, even if the previous block was not written completely.
        part = Mux(self.address == 0, 0, count)
        whole = Cat(before, self.data)
        current = Mux(self.address == 0, 0, line)
        is_last = part == self.parts - 1
        m.d.comb += drive(writes, data=whole, en=self.write & is_last)
        with m.If(self.write):
            m.d.sync += [before.eq(whole[self.beat :]), count.eq(part + 1), line.eq(current)]
            with m.If(is_last):
                m.d.sync += [count.eq(0), line.eq(current + 1)]
        return current
